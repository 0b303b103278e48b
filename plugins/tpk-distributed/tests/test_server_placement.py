from __future__ import annotations

import tensorflow as tf
from tpk_distributed.parameter_servers.server_placement import ServerPlacement, is_on_server, place_on_worker

v1 = tf.compat.v1

SERVERS = ["/job:ps/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:1/device:CPU:0"]
WORKER = "/job:worker/replica:0/task:3"


def test_variables_are_spread_by_their_sizes_and_ops_stay_with_the_worker():
    placement = ServerPlacement(WORKER, SERVERS)
    with tf.Graph().as_default(), v1.device(placement):
        large, small, smaller = (v1.get_variable(name, [size]) for name, size in zip("abc", (100, 10, 5), strict=True))
        total = large[0] + small[0]
    assert [variable.device for variable in (large, small, smaller)] == [SERVERS[0], SERVERS[1], SERVERS[1]]
    assert placement.bytes_on == {SERVERS[0]: 400, SERVERS[1]: 60}
    assert total.device == WORKER


def test_a_device_within_a_process_is_one_of_the_server_and_another_process_is_respected():
    with tf.Graph().as_default(), v1.device(ServerPlacement(WORKER, SERVERS[:1])):
        with tf.device("/cpu:1"):
            scale = v1.get_variable("scale", [])
            doubled = tf.constant(1.0) * 2
        with tf.device("/job:worker/task:0"):
            own = v1.get_variable("own", [])
    assert scale.device == "/job:ps/replica:0/task:0/device:CPU:1"
    assert doubled.device == "/job:worker/replica:0/task:3/device:CPU:1"
    assert own.device == "/job:worker/task:0"
    assert (is_on_server(scale), is_on_server(own)) == (True, False)


def test_ops_without_a_process_are_placed_on_the_worker():
    with tf.Graph().as_default() as graph:
        with tf.device(SERVERS[1]):
            shared = v1.get_variable("shared", [2], initializer=v1.random_normal_initializer())
        own = v1.get_variable("own", [2], initializer=v1.random_normal_initializer())
        with tf.device("/cpu:1"):
            total = shared + own
        place_on_worker(graph, WORKER)
        devices = {op.name: op.device for op in graph.get_operations()}
    assert total.device == "/job:worker/replica:0/task:3/device:CPU:1"
    for name, device in devices.items():
        # Initial values are bound to their variables, which TensorFlow insists upon.
        if name.startswith("shared"):
            assert device == SERVERS[1], name
        else:
            assert device.startswith(WORKER), name
    assert not is_on_server(own)
