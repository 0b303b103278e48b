"""What becomes of workers and parameter servers when another one is killed, or never comes."""

from __future__ import annotations

import os
import re
import signal

import pytest
from distributed_trainings import STRATEGIES, batches, train

import tpk
from tpk.checkpoint import newest_complete

pytestmark = pytest.mark.once


class Tell(tpk.Callback):
    chief_only = False

    def trigger_step(self, trainer):
        if trainer.global_step == 3:
            print("in the middle", flush=True)


def endless(name, **timeouts):
    strategy = STRATEGIES[name](timeouts={"heartbeat": 15, **timeouts})
    train(strategy, batches(4), steps=10**9, callbacks=[Tell()])


def peer_error(process):
    """Wait for the end of a process that ends by a `PeerError`; return what that says."""
    outcome = process.wait()
    assert outcome.status == 1, process.report()
    errors = [line for line in outcome.stderr.splitlines() if line.startswith("tpk.errors.PeerError: ")]
    assert errors, process.report()
    return errors[-1]


@pytest.mark.parametrize("killed", ["worker0", "worker1", "ps0"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_is_killed_is_named_by_all_others(launch, strategy, killed):
    running = launch(endless, servers=1, args=(strategy,))
    for worker in running.workers:
        worker.wait_for("in the middle")
    processes = {"worker0": running.workers[0], "worker1": running.workers[1], "ps0": running.servers[0]}
    victim = processes.pop(killed)
    victim.send(signal.SIGKILL)
    name = {"worker0": "rank 0", "worker1": "rank 1", "ps0": "parameter server 0"}[killed]
    for process in processes.values():
        assert name in peer_error(process)
    assert victim.wait().status == -signal.SIGKILL


def test_a_worker_that_is_stopped_counts_as_dead_after_the_timeout(launch):
    running = launch(endless, servers=1, args=("replicated",))
    for worker in running.workers:
        worker.wait_for("in the middle")
    running.workers[1].send(signal.SIGSTOP)
    for process in (running.workers[0], running.servers[0]):
        assert re.search(r"rank 1 \(.*\) has given no sign of life for \d\d+ s", peer_error(process))
    running.workers[1].kill()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_parameter_server_that_is_stopped_counts_as_dead_after_the_timeout(launch, strategy):
    running = launch(lambda: endless(strategy), servers=2)
    for worker in running.workers:
        worker.wait_for("in the middle")
    running.servers[1].send(signal.SIGSTOP)
    for worker in running.workers:
        assert re.search(
            r"PeerError: .*parameter server 1 \([^)]*\) has given no sign of life for \d+ s", peer_error(worker)
        )
    running.servers[1].kill()
    assert running.servers[0].wait().status == 1


def fails_in_worker_1():
    class Fail(tpk.Callback):
        chief_only = False

        def trigger_step(self, trainer):
            if trainer.strategy.process_group.rank == 1 and trainer.global_step == 3:
                raise ValueError("bad luck")

    train(STRATEGIES["replicated"](), batches(4), steps=10**9, callbacks=[Fail()])


def test_others_say_by_what_error_a_worker_has_failed(launch):
    running = launch(fails_in_worker_1, servers=1)
    for process in (running.workers[0], running.servers[0]):
        assert re.search(r"rank 1 \(.*\) has failed: ValueError: bad luck", peer_error(process))
    assert "ValueError: bad luck" in running.workers[1].wait().stderr


def test_a_worker_that_never_starts_is_named(launch):
    running = launch(lambda: endless("replicated", start=20), servers=1, start=[0])
    for process in (running.workers[0], running.servers[0]):
        assert re.search(r"rank 1 \(.*\) did not start within 20 s", peer_error(process))


def test_a_parameter_server_that_never_starts_is_named(launch):
    def run():
        if "ps" in os.environ["TF_CONFIG"].partition('"task"')[2]:
            return
        endless("replicated", start=2)

    running = launch(run, servers=1)
    for worker in running.workers:
        assert re.search(r"parameter server 0 \(.*\) did not start within 2 s", peer_error(worker))
    running.servers[0].wait()


def until_a_signal(run_dir):
    strategy = STRATEGIES["replicated"]()
    train(strategy, batches(4), steps=10**9, callbacks=[Tell()], run_dir=run_dir)


def test_a_parameter_server_outlives_the_signal_that_ends_all(launch, tmp_path):
    running = launch(until_a_signal, servers=1, args=(tmp_path / "run",))
    for worker in running.workers:
        worker.wait_for("in the middle")
    for process in (*running.servers, *running.workers):
        process.send(signal.SIGTERM)
    for process in (*running.servers, *running.workers):
        assert process.wait().status == 128 + signal.SIGTERM, process.report()
    assert newest_complete(tmp_path / "run").state["progress"]["global_step"] >= 3


def with_data_of_its_own_length():
    strategy = STRATEGIES["replicated"](timeouts={"late_warning": 2}, shard_data=False)
    train(strategy, batches(5 if strategy.rank == 0 else 20), steps=30, infinite=False)


def test_a_rank_whose_data_ends_before_that_of_the_others_is_named(launch):
    running = launch(with_data_of_its_own_length, servers=1)
    shorter, longer = running.workers
    error = peer_error(longer)
    # Either one may be the first to see that they wait for each other.
    assert re.search(r"rank 0 \(.*\) (has ended its training, after 5 steps|is at another point of the program)", error)
    assert "rank 1" in peer_error(shorter)
    assert running.servers[0].wait().status == 1
