"""Trainings on three hosts: what they compute, how they end when one is lost, and how they continue.

The short form is what CI runs; ``TPK_HOSTS=all``, as in ``nox -s hosts``, runs all cases.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from pathlib import Path

import collective_trainings
import distributed_trainings
import networks
import numpy as np
import pytest

import tpk

pytestmark = pytest.mark.once
of_three_hosts = pytest.mark.parametrize("network", [3], indirect=True)
IS_LONG_FORM = os.environ.get("TPK_HOSTS") == "all"
in_long_form = pytest.mark.skipif(not IS_LONG_FORM, reason="`nox -s hosts` runs this")

PORT = 7077
# Shorter than the 20 seconds after which gRPC gives up, and longer than a busy machine holds up a thread.
HEARTBEAT = 15.0
TIMEOUTS = {"heartbeat": HEARTBEAT}
NOTICED_AT_ONCE, NOTICED_BY_SILENCE = 15.0, HEARTBEAT + 30.0
"""Within how many seconds a training ends; the manual says a few seconds for the first. Not measured in CI."""


def enter_host(hosts, addresses):
    """Move this process to the host of its rank; a parameter server is at the chief's host."""
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    networks.enter(hosts[task["index"]], str(Path.cwd().parent))
    cluster = {"worker": [f"{address}:{PORT}" for address in addresses]}
    if "ps" in json.loads(os.environ["TF_CONFIG"])["cluster"]:
        cluster["ps"] = [f"{addresses[0]}:{PORT + 1}"]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})


def train_collectively(hosts, addresses, data, steps, **options):
    enter_host(hosts, addresses)
    strategy = tpk.use("collective", timeouts=TIMEOUTS)
    return collective_trainings.train(data, steps, "adam", strategy=strategy, **options)[0]


def train_with_server(hosts, addresses, data, steps, **options):
    enter_host(hosts, addresses)
    strategy = distributed_trainings.STRATEGIES["replicated"](timeouts=TIMEOUTS)
    model = collective_trainings.Model("adam")
    kept = distributed_trainings.train(strategy, data, steps, model, **options)
    return kept and {f"{name}:0": value for name, value in kept["saved"].items()}


TRAININGS = [(train_collectively, 0), (train_with_server, 1)]


@of_three_hosts
@pytest.mark.parametrize("lost", [0.0, pytest.param(0.05, marks=in_long_form)])
@pytest.mark.parametrize(("train", "servers"), TRAININGS, ids=["collective", "distributed_replicated"])
def test_three_hosts_train_like_one_process(network, launch, train, servers, lost):
    if lost:
        try:
            network.lose(lost)
        except OSError as error:
            pytest.skip(f"needs iptables: {error}")
    data = collective_trainings.batches(60)
    arguments = (network.hosts, network.addresses, data, 20)
    returned = launch(train, workers=3, servers=servers, args=arguments).returned()
    batches = distributed_trainings.concatenated(data, 3)
    one, trained = collective_trainings.train(batches, 20, "adam", strategy="single")
    for values in returned:
        for name in trained:
            # Sums of float32 in another order.
            np.testing.assert_allclose(values[name], one[name], rtol=2e-4, atol=2e-5, err_msg=name)


def kill(network, running):
    running.workers[1].send(signal.SIGKILL)


def stop(network, running):
    running.workers[1].send(signal.SIGSTOP)


def pull_out_the_cable(network, running):
    network.disconnect(1)


def cut_one_link(network, running):
    network.cut(1, 2)


def train_on(hosts, addresses, train):
    data = collective_trainings.batches(6)
    train(hosts, addresses, data, 10**6, callbacks=[collective_trainings.Steps()])


@of_three_hosts
@pytest.mark.parametrize(
    ("train", "servers"),
    [TRAININGS[0], pytest.param(*TRAININGS[1], marks=in_long_form)],
    ids=["collective", "distributed_replicated"],
)
@pytest.mark.parametrize(
    ("lose", "bound", "named"),
    [
        (kill, NOTICED_AT_ONCE, {0: "rank 1", 2: "rank 1"}),
        pytest.param(stop, NOTICED_BY_SILENCE, {0: "rank 1", 2: "rank 1"}, marks=in_long_form),
        pytest.param(pull_out_the_cable, NOTICED_BY_SILENCE, {0: "rank 1", 1: "", 2: "rank 1"}, marks=in_long_form),
    ],
    ids=["kill", "stop", "cable"],
)
def test_the_others_end_in_time_and_name_the_lost_host(network, launch, train, servers, lose, bound, named):
    arguments = (network.hosts, network.addresses, train)
    running = launch(train_on, workers=3, servers=servers, args=arguments)
    for worker in running.workers:
        worker.wait_for("step 5")
    lost = time.monotonic()
    lose(network, running)
    for rank, name in named.items():
        outcome = running.workers[rank].wait()
        assert outcome.status == 1, outcome.stderr[-3000:]
        assert not IS_LONG_FORM or time.monotonic() - lost < bound
        (error,) = re.findall("^tpk.errors.PeerError: .*", outcome.stderr, re.MULTILINE)[-1:]
        assert name in error
    for each in running.processes:
        each.kill()


@of_three_hosts
@in_long_form
def test_a_cut_between_two_hosts_is_named_by_both(network, launch):
    running = launch(train_on, workers=3, args=(network.hosts, network.addresses, train_collectively))
    for worker in running.workers:
        worker.wait_for("step 5")
    lost = time.monotonic()
    cut_one_link(network, running)
    outcomes = running.wait()
    assert time.monotonic() - lost < NOTICED_BY_SILENCE
    for rank, other in ((1, "rank 2"), (2, "rank 1")):
        (error,) = re.findall("^tpk.errors.PeerError: .*", outcomes[rank].stderr, re.MULTILINE)[-1:]
        assert other in error


@in_long_form
@pytest.mark.parametrize("network", [4], indirect=True)
@pytest.mark.parametrize(("train", "servers"), TRAININGS, ids=["collective", "distributed_replicated"])
def test_each_of_four_hosts_names_one_of_the_other_side_when_the_network_is_divided(network, launch, train, servers):
    arguments = (network.hosts, network.addresses, train)
    running = launch(train_on, workers=4, servers=servers, args=arguments)
    for worker in running.workers:
        worker.wait_for("step 5")
    lost = time.monotonic()
    for one, other in itertools.product((0, 1), (2, 3)):
        network.cut(one, other)
    outcomes = running.wait()
    assert time.monotonic() - lost < NOTICED_BY_SILENCE
    for rank, outcome in enumerate(outcomes):
        assert outcome.status == 1, outcome.stderr[-3000:]
        (error,) = re.findall("^tpk.errors.PeerError: .*", outcome.stderr, re.MULTILINE)[-1:]
        if servers and rank > 1:  # Their variables are at the host of the chief.
            assert "parameter server 0" in error
        else:
            assert re.search("rank [23]" if rank < 2 else "rank [01]", error), (rank, error)
    for server in running.servers:
        server.wait()


def train_with_patience(hosts, addresses):
    enter_host(hosts, addresses)
    options = {"timeouts": {"heartbeat": 60.0}}
    collective_trainings.train_forever(rank=-1, options=options)


@of_three_hosts
@in_long_form
def test_an_interruption_is_named_by_both_ends(network, launch):
    running = launch(train_with_patience, workers=3, args=(network.hosts, network.addresses))
    for worker in running.workers:
        worker.wait_for("step 5")
    network.disconnect(0)
    time.sleep(27)  # The length of the interruption: longer than gRPC waits, shorter than the heartbeat.
    network.connect(0)
    errors = []
    for outcome in running.wait():
        assert outcome.status == 1, outcome.stderr[-3000:]
        errors += re.findall("^tpk.errors.PeerError: .*", outcome.stderr, re.MULTILINE)[-1:]
    # It is the chief's link, as the chief sees it, or another host.
    chief = rf"(rank 0 \([\d.:]*\) did not answer for .*|between there and {network.hosts[0]}) (is cut|was interrupted)"
    assert all(re.search(chief, error) for error in errors), errors


def train_two_epochs(hosts, addresses, train, run_dir, killed):
    kill = collective_trainings.Steps(killed, 7, lambda: os.kill(os.getpid(), signal.SIGKILL))
    # On each host another one: only the chief needs it.
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    options = {"run_dir": run_dir / f"{task['type']}{task['index']}", "resume": "auto"}
    options["callbacks"] = [tpk.ModelSaver(when=tpk.Every(steps=4)), kill]
    return train(hosts, addresses, collective_trainings.batches(30), 10, epochs=2, **options)


@of_three_hosts
@pytest.mark.parametrize(
    ("train", "servers"),
    [TRAININGS[0], pytest.param(*TRAININGS[1], marks=in_long_form)],
    ids=["collective", "distributed_replicated"],
)
@pytest.mark.parametrize("killed", [0, pytest.param(1, marks=in_long_form)], ids=["chief", "other"])
def test_restarted_hosts_continue_to_the_same_bits(network, launch, tmp_path, train, servers, killed):
    def run(run_dir, killed):
        arguments = (network.hosts, network.addresses, train, tmp_path / run_dir, killed)
        return launch(train_two_epochs, workers=3, servers=servers, args=arguments)

    whole = run("whole", -1).returned()
    first = run("killed", killed)
    assert [outcome.status == 0 for outcome in first.wait()] == [False] * 3
    for each in first.processes:
        each.kill()
    again = run("killed", -1).returned()
    for before, after in zip(whole, again, strict=True):
        assert before.keys() == after.keys()
        for name, value in before.items():
            assert after[name].tobytes() == value.tobytes(), name
