"""What becomes of a training when the network between its hosts is cut."""

from __future__ import annotations

import json
import os
import re

import collective_trainings
import distributed_trainings
import networks
import pytest

pytestmark = pytest.mark.once

# Shorter than the 20 seconds after which gRPC gives up, and longer than a busy machine holds up a thread.
TIMEOUT = 15.0
PORT = 7077


def enter_host(hosts, cluster):
    """Move this process to its host, of those of the workers, and then of the parameter servers."""
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    networks.enter(hosts[task["index"] + (len(cluster["worker"]) if task["type"] == "ps" else 0)])
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})


def train_collectively(hosts, cluster):
    enter_host(hosts, cluster)
    collective_trainings.train_forever(options={"timeouts": {"heartbeat": TIMEOUT}})


def train_with_servers(hosts, cluster):
    enter_host(hosts, cluster)

    strategy = distributed_trainings.STRATEGIES["replicated"](timeouts={"heartbeat": TIMEOUT})
    callbacks = [collective_trainings.Steps()]
    distributed_trainings.train(strategy, distributed_trainings.batches(4), steps=10**9, callbacks=callbacks)


def cut_while_training(launch, network, train, servers, cut):
    """Return the last `PeerError` of each process, which all of them end by, and soon; the workers' come first."""
    addresses = [f"{address}:{PORT}" for address in network.addresses]
    cluster = {"worker": addresses[:2], "ps": addresses[2:]} if servers else {"worker": addresses}
    running = launch(train, servers=servers, args=(network.hosts, cluster))
    for worker in running.workers:
        worker.wait_for("step 5")
    cut()
    # Where nobody noticed, they would wait for each other until they are killed, which is an error.
    outcomes = [process.wait() for process in (*running.workers, *running.servers)]
    errors = []
    for outcome in outcomes:
        assert outcome.status == 1, outcome.stderr[-3000:]
        errors += re.findall("^tpk.errors.PeerError: .*", outcome.stderr, re.MULTILINE)[-1:] or [""]
    return errors


@pytest.mark.parametrize("network", [2], indirect=True)
@pytest.mark.parametrize(
    ("cut", "host"),
    [(networks.Network.disconnect, 1), (networks.Network.switch_off, 0)],
    ids=["silently", "at the chief"],
)
def test_both_ends_name_the_other_when_the_link_is_cut(network, launch, cut, host):
    errors = cut_while_training(launch, network, train_collectively, 0, lambda: cut(network, host))
    for rank, error in enumerate(errors):
        assert f"rank {1 - rank} ({network.addresses[1 - rank]}:{PORT})" in error


@pytest.mark.parametrize("network", [3], indirect=True)
@pytest.mark.parametrize(
    ("host", "named"),
    [(1, ["rank 1", "parameter server 0", "rank 1"]), (2, ["parameter server 0", "parameter server 0", "rank "])],
    ids=["worker", "server"],
)
def test_both_ends_name_the_other_when_a_link_to_a_server_is_cut(network, launch, host, named):
    errors = cut_while_training(launch, network, train_with_servers, 1, lambda: network.disconnect(host))
    for error, name in zip(errors, named, strict=True):
        assert name in error, errors
