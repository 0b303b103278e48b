from __future__ import annotations

import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.strategies.device_setter import LeastLoadedDeviceSetter

v1 = tf.compat.v1
CPUS = ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]


def variable(name, shape, dtype=tf.float32):
    return v1.get_variable(name, shape, dtype, initializer=v1.zeros_initializer())


@pytest.mark.usefixtures("resource_variables")
def test_variables_are_balanced_by_their_bytes_and_the_rest_is_with_the_worker():
    setter = LeastLoadedDeviceSetter("/device:CPU:2", CPUS[:2])
    with tf.Graph().as_default(), v1.device(setter):
        large = variable("large", [100])
        small = [variable(f"small{index}", [10], tf.float64) for index in range(5)]
        last = variable("last", [1])
        product = large * 2.0
    assert large.op.type == "VarHandleOp"
    assert large.device == CPUS[0]
    assert [each.device for each in small] == [CPUS[1]] * 5, "5 x 80 bytes fit beside 400"
    assert last.device == CPUS[0], "of equals, the first"
    assert setter.bytes_on == {CPUS[0]: 404, CPUS[1]: 400}
    assert product.device == "/device:CPU:2"


def test_it_counts_reference_variables_too():
    setter = LeastLoadedDeviceSetter("/device:CPU:0", CPUS[:2])
    with tf.Graph().as_default(), v1.device(setter):
        first = v1.get_variable("first", [3], use_resource=False)
        second = v1.get_variable("second", [3], use_resource=False)
    assert [first.device, second.device] == CPUS[:2]


def test_a_variable_of_unknown_shape_counts_as_one_element():
    setter = LeastLoadedDeviceSetter("/device:CPU:0", CPUS[:1])
    with tf.Graph().as_default(), v1.device(setter):
        v1.Variable(v1.placeholder(tf.float32, [None]), shape=[None], use_resource=True)
    assert setter.bytes_on == {CPUS[0]: 4}


def test_ops_that_the_user_placed_stay_there():
    setter = LeastLoadedDeviceSetter("/device:CPU:0", CPUS[:2])
    with tf.Graph().as_default(), v1.device(setter), tf.device("/device:CPU:2"):
        mine = variable("mine", [100])
        sum_of_mine = tf.reduce_sum(mine)
    assert mine.device == sum_of_mine.device == CPUS[2]
    assert set(setter.bytes_on.values()) == {0}


def test_workers_share_the_account():
    setter = LeastLoadedDeviceSetter("/device:CPU:0", CPUS[:2])
    with tf.Graph().as_default():
        with v1.device(setter.for_worker("/device:CPU:0")):
            first = variable("first", [10])
        with v1.device(setter.for_worker("/device:CPU:1")):
            second = variable("second", [5])
            third = variable("third", [5])
            here = tf.ones([])
    assert [each.device for each in (first, second, third)] == [CPUS[0], CPUS[1], CPUS[1]]
    assert here.device == CPUS[1]


def test_slots_are_on_the_device_of_their_variable():
    setter = LeastLoadedDeviceSetter("/device:CPU:0", CPUS)
    with tf.Graph().as_default(), v1.device(setter):
        variables = [variable(f"v{index}", [4]) for index in range(3)]
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        optimizer.minimize(tf.add_n([tf.reduce_sum(each) for each in variables]))
    assert [each.device for each in variables] == CPUS
    assert [optimizer.get_slot(each, "momentum").device for each in variables] == CPUS


class Partition(tpk.Callback):
    """Keeps on which devices the runtime put the ops of a step."""

    def before_run(self, run_context):
        options = v1.RunOptions(output_partition_graphs=True)
        return v1.train.SessionRunArgs(None, None, options)

    def after_run(self, run_context, run_values):
        graphs = run_values.run_metadata.partition_graphs
        self.device_of = {node.name: node.device.rsplit("/device:", 1)[-1] for graph in graphs for node in graph.node}


def train(strategy):
    """Two steps of a model with two layers, of 24 and 4 bytes, and 16 and 8 bytes."""

    def build(x):
        hidden = layers.dense(x, 2, name="first")
        return tf.reduce_mean(layers.dense(hidden, 1, name="second"))

    partition = Partition()
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(
        [tf.TensorSpec([None, 3], tf.float32, "x")],
        tpk.TensorInput(lambda: [tf.ones([2, 3])]),
        build,
        lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    )
    trainer.train(callbacks=[partition], steps_per_epoch=2, max_epoch=1)
    return trainer, partition.device_of


@pytest.mark.parametrize(
    ("ps_device", "devices"),
    [
        ("cpu", ["CPU:0", "CPU:0", "CPU:0", "CPU:0"]),
        # 24 bytes; 8 on the next, 8 on the third; 4 on the less loaded of these, the first of the equal ones.
        ("gpu", ["CPU:0", "CPU:1", "CPU:2", "CPU:1"]),
    ],
)
def test_the_parameter_server_strategy_places_variables_on_the_chosen_device(ps_device, devices):
    trainer, device_of = train(tpk.use("parameter_server", devices=CPUS, ps_device=ps_device))
    with trainer.graph.as_default():
        variables = v1.trainable_variables()
        momenta = [each for each in v1.global_variables() if each.name.endswith("Momentum:0")]
    names = ["first/kernel", "first/bias", "second/kernel", "second/bias"]
    assert [each.op.name for each in variables] == names
    assert [device_of[name] for name in names] == devices
    assert [device_of[each.op.name] for each in momenta] == devices


def test_the_ops_of_towers_run_on_their_devices():
    _, device_of = train(tpk.use("parameter_server", devices=CPUS))
    for tower in range(3):
        products = [name for name in device_of if name.startswith(f"tower{tower}/") and name.endswith("MatMul")]
        assert products
        assert {device_of[name] for name in products} == {f"CPU:{tower}"}
