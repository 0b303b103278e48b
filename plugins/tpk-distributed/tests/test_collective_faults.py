"""What becomes of a collective training in which a process dies, hangs, fails, is late, or never starts."""

from __future__ import annotations

import json
import os
import signal
import socket

import collective_trainings as trainings
import pytest
from tpk_distributed import CollectiveStrategy

import tpk

pytestmark = pytest.mark.once

QUICK = {"timeouts": {"heartbeat": 15.0}}


def assert_ended_by_peer_error(outcome, *words):
    assert outcome.status == 1, outcome.stderr[-3000:]
    (last,) = [line for line in outcome.stderr.splitlines() if line.startswith("tpk.errors.PeerError")][-1:] or [""]
    assert last, outcome.stderr[-3000:]
    for word in words:
        assert word in last, last


@pytest.mark.parametrize("killed", [0, 1])
def test_the_others_end_when_one_is_killed_in_a_step(launch, killed):
    running = launch(trainings.train_forever, args=(None, 1, 3, QUICK))
    for worker in running.workers:
        worker.wait_for("step 5")
    running.workers[killed].send(signal.SIGKILL)
    assert_ended_by_peer_error(running.wait()[1 - killed], f"rank {killed}", "is gone")


def test_all_others_name_the_one_that_was_killed(launch):
    running = launch(trainings.train_forever, workers=3, args=(None, 1, 3, QUICK))
    for worker in running.workers:
        worker.wait_for("step 3")
    running.workers[2].send(signal.SIGKILL)
    for outcome in running.wait()[:2]:
        assert_ended_by_peer_error(outcome, "rank 2")


def test_a_process_that_does_not_answer_counts_as_dead(launch):
    running = launch(trainings.train_forever, args=(None, 1, 3, QUICK))
    running.workers[1].wait_for("step 5")
    running.workers[1].send(signal.SIGSTOP)
    assert_ended_by_peer_error(running.workers[0].wait(), "rank 1", "has given no sign of life")
    running.workers[1].send(signal.SIGKILL)
    running.workers[1].send(signal.SIGCONT)
    running.wait()


def gather_in_each_step():
    class Gather(tpk.Callback):
        chief_only = False

        def trigger_step(self, trainer):
            trainer.strategy.process_group.gather_object("something", None)

    stop = trainings.Steps(0, 3, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    strategy = tpk.use("collective", **QUICK)
    trainings.train(trainings.batches(8) * 10, 40, callbacks=[stop, Gather()], strategy=strategy)


def test_who_waits_in_an_exchange_for_a_chief_that_does_not_answer_is_freed(launch):
    running = launch(gather_in_each_step)
    chief, other = running.workers
    chief.wait_for("step 3")
    assert_ended_by_peer_error(other.wait(), "rank 0", "has given no sign of life")
    chief.kill()


def test_the_error_of_one_is_told_by_the_others(launch):
    first, second = launch(trainings.train_forever, args=(trainings.fail, 1, 3, QUICK)).wait()
    assert "\nValueError: the model has gone bad" in second.stderr
    assert_ended_by_peer_error(first, "rank 1", "has failed", "the model has gone bad")


def test_one_that_is_late_is_reported_and_waited_for(launch):
    def run(act):
        strategy = tpk.use("collective", timeouts={"late_warning": 0.3})
        trainings.train(trainings.batches(16), 8, callbacks=[trainings.Steps(1, 3, act)], strategy=strategy)

    running = launch(run, args=(input,))
    first, second = running.workers
    first.wait_for(" s for rank 1")
    second.tell("go on")
    running.returned()


def test_one_that_is_too_late_is_waited_for_no_longer(launch):
    def run(act):
        strategy = tpk.use("collective", timeouts={"barrier": 10.0, "late_warning": 0.5})
        callbacks = [trainings.Steps(1, 3, act)]
        trainings.train(trainings.batches(16), 8, callbacks=callbacks, strategy=strategy)

    running = launch(run, args=(input,))
    assert_ended_by_peer_error(running.workers[0].wait(), "rank 1", "is alive, but has not reached")
    running.workers[1].tell("go on")
    running.wait()


def test_one_that_never_starts_is_named(launch):
    options = {"timeouts": {"start": 2.0}}
    running = launch(trainings.train_forever, args=(None, 1, 3, options), start=[0])
    (outcome,) = running.wait()
    assert_ended_by_peer_error(outcome, "rank 1", "did not start within 2 s")


def wait_for_an_unknown_host():
    own = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0].replace("127.0.0.1", "0.0.0.0")
    cluster = {"cluster": {"worker": [own, "host.invalid:2222"]}, "task": {"type": "worker", "index": 0}}
    CollectiveStrategy(timeouts={"start": 2.0}, cluster=cluster).join()


def test_an_unknown_host_is_an_error_at_once(launch):
    (outcome,) = launch(wait_for_an_unknown_host, start=[0]).wait()
    last = outcome.stderr.strip().splitlines()[-1]
    assert last.startswith("tpk.errors.ConfigError: the host of host.invalid:2222 is unknown")


def test_an_unknown_pod_is_waited_for_and_then_named(launch):
    (outcome,) = launch(wait_for_an_unknown_host, start=[0], env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).wait()
    assert_ended_by_peer_error(outcome, "did not start within 2 s", "The name of the host of rank 1")


def join_and_wait(rank):
    strategy = CollectiveStrategy(**QUICK)
    strategy.join()
    print("joined", flush=True)
    try:
        if strategy.rank == rank:
            input()
        strategy.process_group.gather_object("something", None)
    finally:  # As a trainer does, however it ends.
        strategy.leave()


@pytest.mark.parametrize("killed", [0, 1])
def test_the_others_end_when_one_is_killed_before_the_first_step(launch, killed):
    running = launch(join_and_wait, args=(killed,))
    for worker in running.workers:
        worker.wait_for("joined")
    running.workers[killed].send(signal.SIGKILL)
    assert_ended_by_peer_error(running.wait()[1 - killed], f"rank {killed}", "is gone")


def test_a_port_in_use_is_named(launch):
    def run():
        strategy = CollectiveStrategy()
        with socket.create_server(("", strategy.cluster.port)):
            strategy.join()

    (outcome,) = launch(run, start=[0]).wait()
    last = outcome.stderr.strip().splitlines()[-1]
    assert "ConfigError" in last and "cannot listen at port" in last
