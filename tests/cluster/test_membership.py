"""Who the processes of a training with parameter servers are, and what is known of them; no other process is needed."""

from __future__ import annotations

import socket
import threading

import pytest
import tensorflow as tf

from tpk.cluster import membership as ps_attendance
from tpk.cluster.connections import wait_until_listening
from tpk.cluster.membership import ALIVE, ENDED, FAILED, LEFT, Attendance, Sign
from tpk.cluster.server import cluster_of, wait_for_servers
from tpk.cluster.sessions import WorkerSession
from tpk.cluster.spec import Cluster
from tpk.errors import ConfigError, PeerError
from tpk.strategies.parameter_servers.replicated import DistributedReplicatedStrategy

v1 = tf.compat.v1

CLUSTER = Cluster(workers=["10.0.0.1:1", "10.0.0.2:1"], ps=["10.0.0.3:1"], index=1)


def server(jobs, job, index):
    """A server of TensorFlow's that nobody starts."""
    return v1.train.Server(tf.train.ClusterSpec(jobs), job_name=job, task_index=index, start=False)


@pytest.fixture
def address():
    """One where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    return f"127.0.0.1:{port}"


def test_a_server_tells_the_cluster(address):
    cluster = Cluster(workers=["10.0.0.1:1", address], ps=["10.0.0.3:1"], index=1)
    given = server({"worker": list(cluster.workers), "ps": list(cluster.ps)}, "worker", 1)
    assert cluster_of(given) == cluster
    strategy = DistributedReplicatedStrategy(2, given)
    assert (strategy.rank, strategy.world_size, strategy.num_replicas, strategy.is_chief) == (1, 2, 2, False)


def test_a_server_whose_cluster_has_other_jobs_is_an_error(address):
    with pytest.raises(ConfigError, match="the cluster of the server has jobs 'chief'; expected 'worker'"):
        cluster_of(server({"chief": [address], "ps": ["10.0.0.3:1"]}, "chief", 0))


def test_a_cluster_without_parameter_servers_is_an_error():
    with pytest.raises(ConfigError, match=r"has no parameter server.* `tpk launch -n 2 --ps 1 script\.py`"):
        DistributedReplicatedStrategy(cluster=Cluster(workers=["127.0.0.1:1"]))


@pytest.mark.parametrize("option", ["start_timeout", "timeout", "late_after", "patience"])
def test_a_time_that_cannot_be_is_an_error(option):
    with pytest.raises(ConfigError, match=f"{option}=0: expected a positive number of seconds"):
        DistributedReplicatedStrategy(cluster=CLUSTER, **{option: 0})


def test_a_parameter_server_is_no_chief():
    strategy = DistributedReplicatedStrategy(cluster=Cluster(CLUSTER.workers, CLUSTER.ps, job="ps", index=0))
    assert not strategy.is_chief


def test_only_those_who_do_not_listen_are_named():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as closed:
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (listening, closed)]
        closed.close()
        assert wait_until_listening(addresses, seconds=0.3) == addresses[1:]
        cluster = Cluster(workers=["10.0.0.1:1"], ps=addresses)
        with pytest.raises(PeerError, match=rf"parameter server 1 \({addresses[1]}\) did not start within 0\.3 s"):
            wait_for_servers(cluster, 0.3)


class World:
    """Two workers, a clock, and which addresses answer."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.listening = set(CLUSTER.workers)
        monkeypatch.setattr(ps_attendance, "is_listening", lambda address: address in self.listening)
        self.attendance = Attendance(CLUSTER, timeout=60, silence=3, clock=lambda: self.now)

    def note(self, *signs):
        self.attendance.note([b"" if sign is None else sign.encode() for sign in signs])


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_who_has_not_come_is_absent_and_no_failure(world):
    world.note(Sign(ALIVE, 1), None)
    world.now = 1000
    world.note(Sign(ALIVE, 2), None)
    assert world.attendance.absent == ["rank 1 (10.0.0.2:1)"]
    assert world.attendance.failures() == []
    assert not world.attendance.are_gone()


def test_a_worker_that_is_silent_is_dead_once_it_does_not_listen_or_after_the_timeout(world):
    world.note(Sign(ALIVE, 1), Sign(ALIVE, 1))
    world.now = 50
    world.note(Sign(ALIVE, 2), Sign(ALIVE, 1))
    assert world.attendance.failures() == []
    world.listening.remove("10.0.0.2:1")
    assert world.attendance.failures() == ["rank 1 (10.0.0.2:1) has died: nothing listens at its address any more"]
    world.listening.add("10.0.0.2:1")
    world.now = 61
    world.note(Sign(ALIVE, 3), Sign(ALIVE, 1))
    assert world.attendance.failures() == ["rank 1 (10.0.0.2:1) has given no sign of life for 61 s"]


def test_who_gives_signs_lives_even_if_it_seems_not_to_listen(world):
    world.listening.clear()
    for count in range(5):
        world.now += 2
        world.note(Sign(ALIVE, count), Sign(ALIVE, count))
        assert world.attendance.failures() == []


def test_who_fails_because_of_another_is_not_to_blame(world):
    world.note(Sign(FAILED, 1, 7, "PeerError: rank 1", is_consequence=True), Sign(ALIVE, 1))
    assert world.attendance.failures() == ["rank 0 (10.0.0.1:1) has failed: PeerError: rank 1"]
    world.note(Sign(FAILED, 1, 7, "PeerError: rank 1", is_consequence=True), Sign(FAILED, 2, 7, "ValueError: x\ny"))
    assert world.attendance.failures() == ["rank 1 (10.0.0.2:1) has failed: ValueError: x\ny"]
    assert world.attendance.are_gone()


def test_who_is_behind_and_who_has_ended(world):
    world.note(Sign(LEFT, 5, step=9), Sign(ALIVE, 5, step=10))
    assert world.attendance.ended_before(11) == ["rank 0 (10.0.0.1:1), at step 9"]
    assert world.attendance.behind(11) == ["rank 1 (10.0.0.2:1), at step 10"]
    assert (world.attendance.ended_before(9), world.attendance.behind(10)) == ([], [])
    assert (world.attendance.has_left(0), world.attendance.has_left(1)) == (True, False)


def test_who_has_ended_is_still_here_and_can_die(world):
    world.note(Sign(ENDED, 5, step=9), Sign(LEFT, 5, step=10))
    assert world.attendance.ended_before(10) == ["rank 0 (10.0.0.1:1), at step 9"]
    assert not world.attendance.are_gone()
    world.now = 61
    assert world.attendance.failures() == ["rank 0 (10.0.0.1:1) has given no sign of life for 61 s"]
    assert world.attendance.are_gone()


def test_a_run_that_waits_in_vain_can_be_broken_off_and_the_session_be_closed():
    local = v1.train.Server.create_local_server()
    with tf.Graph().as_default() as graph:
        never = tf.queue.FIFOQueue(1, [tf.float32]).dequeue()
    sess = WorkerSession(local.target, graph, v1.ConfigProto())
    threading.Timer(0.2, sess.break_off).start()
    for _ in range(2):
        with pytest.raises(tf.errors.CancelledError):
            sess.run(never)
    sess.close()
    with pytest.raises(RuntimeError, match="closed"):
        sess.run(never)
