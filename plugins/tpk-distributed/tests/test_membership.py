"""The known states of other processes, and which of them caused a failure; without starting processes."""

from __future__ import annotations

import socket

import attrs
import pytest
from tpk_distributed import Cluster, Timeouts
from tpk_distributed.membership import LEFT, Membership, Wait, WorkerState

from tpk.errors import MismatchError, PeerError

WORKERS = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]
SERVERS = ["10.0.0.9:1"]
TIMEOUTS = Timeouts(start=300, heartbeat=60, late_warning=30, barrier=1800)
RANK_1, RANK_2, SERVER = "rank 1 (10.0.0.2:1)", "rank 2 (10.0.0.3:1)", "parameter server 0 (10.0.0.9:1)"
NO_COUNTS = {"step": 0, "gather": 0, "broadcast": 0, "synchronization": 0}


class World:
    """The process with rank 0, as the others see it, a clock, and which addresses refuse a connection."""

    def __init__(self, ps=()):
        self.now = 0.0
        self.refused = set()
        self.cluster = Cluster(workers=WORKERS, ps=ps)
        self.members = Membership(self.cluster, 1, TIMEOUTS, lambda: self.now, lambda address: address in self.refused)
        self.states = [WorkerState.first(self.cluster, 1) for _ in WORKERS]

    def beat(self, *ranks, **changes):
        """Let workers give a sign of life, and take note of the states of all."""
        for rank in ranks:
            state = self.states[rank]
            self.states[rank] = attrs.evolve(state, beat=state.beat + 1, **changes)
        self.members.note({rank: WorkerState.decode(state.encode()) for rank, state in enumerate(self.states)})

    def wait(self, kind="step", number=1):
        return Wait(kind, number, self.now, lambda: None)


@pytest.fixture
def world():
    world = World()
    world.beat(1, 2)
    return world


def names(members):
    return [each.name for each in members]


def test_a_process_that_has_not_started_is_missing_but_not_failed():
    world = World()
    world.members.note({1: world.states[1]})
    world.now = 299
    assert names(world.members.check_start(299)) == [RANK_2]
    assert world.members.to_blame() == []
    with pytest.raises(PeerError, match=r"^rank 2 \(.*\) did not start within 300 s.*timeouts=\{'start': <seconds>\}"):
        world.members.check_start(301)


def test_parameter_servers_are_missed_before_workers_which_only_they_know():
    world = World(SERVERS)
    assert names(world.members.missing()) == [SERVER]
    world.members.hear(("ps", 0))
    assert names(world.members.missing()) == [RANK_1, RANK_2]


def test_a_worker_that_has_finished_fewer_trainings_is_missing_still():
    world = World()
    world.members = Membership(world.cluster, 2, TIMEOUTS, lambda: world.now)
    world.beat(1, 2)
    with pytest.raises(PeerError, match=r"rank 2 \(.*\) has finished fewer trainings than this process"):
        world.members.check_start(301)


def test_a_worker_of_another_cluster_is_an_error():
    world = World()
    other = WorkerState.first(Cluster(workers=WORKERS[:2]), 1)
    world.members.note({1: other})
    with pytest.raises(MismatchError, match=r"rank 1 .* belongs to another cluster"):
        world.members.check_start(0)


def test_a_worker_that_is_silent_is_gone_once_it_does_not_listen_or_after_the_timeout(world):
    world.now = 50
    world.beat(1)
    assert world.members.to_blame() == []
    world.refused.add(WORKERS[2])
    world.beat(1)
    assert world.members.to_blame() == [f"{RANK_2} is gone: nothing listens at its address any more"]
    world.now = 111
    world.beat()
    (_, silent) = sorted(world.members.to_blame(), reverse=True)
    assert silent.startswith(f"{RANK_1} has given no sign of life for 61 s")
    assert world.members.staying() == []


def test_an_answer_is_waited_for_until_the_process_would_count_as_gone(world):
    world.now = 50
    world.beat(1)
    world.now = 55
    assert world.members.patience(("worker", 1)) == 55
    assert world.members.patience(("worker", 2)) == 5
    world.now = 61
    world.beat()
    assert names(world.members.gone()) == [RANK_2]
    assert world.members.patience(("worker", 2)) < 5


def test_a_process_with_heartbeats_is_alive_even_if_its_port_is_closed(world):
    world.refused.update(WORKERS)
    for _ in range(5):
        world.now += 2
        world.beat(1, 2)
        assert world.members.to_blame() == []


def test_an_old_state_on_another_board_is_not_a_sign_of_life(world):
    old = world.states[1]
    world.beat(1)
    world.now = 2.5
    world.members.note({1: old})
    world.now = 3.5
    world.refused.add(WORKERS[1])
    world.members.note({1: old})
    assert world.members.to_blame() == [f"{RANK_1} is gone: nothing listens at its address any more"]


def test_another_process_at_the_address_of_a_member_replaces_it(world):
    world.states[1] = WorkerState.first(world.cluster, 1)
    world.beat(1)
    assert world.members.to_blame() == [f"{RANK_1} is gone: another process has taken its place"]


def test_a_process_that_fails_because_of_another_is_not_to_blame(world):
    world.beat(1, phase=LEFT, failure="PeerError: rank 2 is gone", is_own_failure=False)
    assert world.members.to_blame() == [f"{RANK_1} has ended its training because rank 2 is gone"]
    world.beat(2, phase=LEFT, failure="ValueError: x")
    assert world.members.to_blame() == [f"{RANK_2} has failed: ValueError: x"]


def test_that_a_server_is_gone_is_the_fault_of_no_worker():
    world = World(SERVERS)
    world.members.hear(("ps", 0))
    world.beat(1, 2)
    world.now = 61
    for job, index in (("worker", 1), ("ps", 0)):
        world.members.doubt((job, index))
    assert [blame.partition(" has given")[0] for blame in world.members.to_blame()] == [SERVER]


def test_a_process_that_left_before_a_wait_that_others_begin_is_to_blame(world):
    world.beat(1, phase=LEFT, counts={"step": 7})
    assert world.members.to_blame(world.wait("step", 7)) == []
    assert world.members.to_blame(world.wait("step", 8)) == [f"{RANK_1} has ended its training, after 7 steps"]
    world.now = 1000
    world.refused.update(WORKERS)
    world.beat(2)
    assert world.members.to_blame() == []
    assert names(world.members.staying()) == [RANK_2]


def test_a_late_process_is_waited_for_until_the_barrier_timeout(world):
    wait = world.wait("step", 3)
    world.beat(1, counts={"step": 3})
    world.beat(2, counts={"step": 2})
    assert names(world.members.behind(wait)) == [RANK_2]
    world.now = 1799
    assert world.members.in_vain(wait, {**NO_COUNTS, "step": 3}) == []
    world.now = 1801
    assert world.members.in_vain(wait, {**NO_COUNTS, "step": 3}) == [
        f"{RANK_2} is alive, but has not reached step 3, where this process has waited for 1801 s"
    ]


def test_a_process_that_waits_at_another_point_is_reported(world):
    wait = world.wait("step", 3)
    world.beat(1, counts={"step": 3})
    world.beat(2, counts={"step": 2, "gather": 1})
    assert world.members.in_vain(wait, {**NO_COUNTS, "step": 3}) == []
    world.now = 31
    (reason,) = world.members.in_vain(wait, {**NO_COUNTS, "step": 3})
    assert reason.startswith(f"{RANK_2} is at another point of the program: it waits in gather 1, and this process in")


def test_who_has_not_answered_since_a_moment_is_known(world):
    world.now = 20
    world.beat(2)
    assert names(world.members.unheard_since(10)) == [RANK_1]
    world.beat(1, phase=LEFT)
    world.now = 40
    assert names(world.members.unheard_since(30)) == [RANK_2]


def test_who_does_not_answer_is_named_with_the_seconds(world):
    world.now = 20
    world.beat(2)
    (silence,) = world.members.silences(10)
    assert silence.startswith(f"{RANK_1} did not answer for the last 20 s") and socket.gethostname() in silence


def test_who_hears_nobody_names_nobody(world):
    world.now = 20
    (silence,) = world.members.silences(10)
    assert silence.startswith("all other processes did not answer for the last 20 s")


def test_an_interruption_that_is_over_is_named_with_its_seconds(world):
    for world.now in range(2, 28):
        world.beat(2)
    world.beat(1)
    (silence,) = world.members.silences(26)
    assert silence.startswith(f"{RANK_1} did not answer for 27 s, until 0 s ago") and socket.gethostname() in silence
    for world.now in range(28, 60):
        world.beat(1, 2)
    assert world.members.silences(59) == []
