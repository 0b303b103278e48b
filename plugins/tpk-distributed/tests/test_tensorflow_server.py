"""Who reaches TensorFlow's server of a process, which listens at all network interfaces as TensorFlow has it."""

from __future__ import annotations

import logging
import socket
import sys

import networks
import psutil
import pytest
import tensorflow as tf

pytestmark = pytest.mark.once

PORT = 7077
WARNING = "without authentication: any host that reaches it can run code in this process"


def serve(addresses=None, host=None):
    """Start the server of the first address of a cluster, and have it answer until somebody writes a line."""
    from tpk_distributed import Cluster
    from tpk_distributed.tensorflow_server import start_server

    if host is not None:
        networks.enter(host)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    cluster = Cluster.find() if addresses is None else Cluster(workers=addresses)
    server = start_server(cluster, tf.compat.v1.ConfigProto())
    only_this = tf.compat.v1.ConfigProto(device_filters=["/job:worker/task:0"])
    with tf.Graph().as_default(), tf.compat.v1.Session(server.target, config=only_this) as sess:
        print("the answer is", sess.run(tf.constant(42)))
        input()


def reaches(host, address, port=PORT):
    """Whether something listens at an address, as seen from a host."""
    if host is not None:
        networks.enter(host)
    try:
        socket.create_connection((address, port), 10).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("network", [2], indirect=True)
def test_a_cluster_on_loopback_is_reached_by_no_other_host(network, launch):
    ours, theirs = network.hosts
    (server,) = launch(serve, workers=1, args=([f"127.0.0.1:{PORT}"], ours)).workers
    server.wait_for("the answer is 42")
    assert launch(reaches, workers=1, args=(ours, "127.0.0.1")).returned() == [True]
    assert launch(reaches, workers=1, args=(theirs, network.addresses[0])).returned() == [False]
    server.tell("end")
    assert WARNING not in server.wait().stderr


@pytest.mark.parametrize("network", [2], indirect=True)
def test_a_cluster_of_several_hosts_is_reached_by_all_and_the_log_says_so(network, launch):
    addresses = [f"{address}:{PORT}" for address in network.addresses]
    (server,) = launch(serve, workers=1, args=(addresses, network.hosts[0])).workers
    server.wait_for("the answer is 42")
    assert launch(reaches, workers=1, args=(network.hosts[1], network.addresses[0])).returned() == [True]
    server.tell("end")
    assert server.wait().stderr.count(WARNING) == 1


def test_what_listens_on_loopback_is_not_there_at_other_addresses(launch):
    """Without the right to make hosts: this one has other addresses, too."""
    found = [
        each.address for those in psutil.net_if_addrs().values() for each in those if each.family == socket.AF_INET
    ]
    others = [address for address in found if not address.startswith("127.")]
    if not others:
        pytest.skip("this host has no address but those of loopback")
    running = launch(serve, workers=1)
    (server,) = running.workers
    port = int(running.cluster.workers[0].rpartition(":")[2])
    server.wait_for("the answer is 42")
    assert reaches(None, "127.0.0.1", port)
    assert not reaches(None, others[0], port)
    server.tell("end")
    assert server.wait().status == 0
