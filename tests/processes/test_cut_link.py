"""What becomes of a collective training when the network between its hosts is cut."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time

import collective_trainings as trainings
import networks
import pytest

TIMEOUT = 5.0
PORT = 7077


@pytest.fixture
def two_hosts():
    """Two hosts, or a test that is skipped where none can be made."""
    with contextlib.ExitStack() as held:
        try:
            made = held.enter_context(networks.network(2))
        except OSError as error:
            pytest.skip(f"needs iproute2, and the right to make network namespaces: {error}")
        yield made


def train_at(hosts, addresses):
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    networks.enter(hosts[rank])
    workers = [f"{address}:{PORT}" for address in addresses]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    trainings.train_forever(options={"timeout": TIMEOUT, "start_timeout": 30.0})


@pytest.mark.parametrize(
    ("cut", "host"),
    [(networks.Network.disconnect, 1), (networks.Network.switch_off, 0)],
    ids=["silently", "at the chief"],
)
def test_both_ends_name_the_other_when_the_link_is_cut(two_hosts, launch, cut, host):
    running = launch(train_at, args=(two_hosts.hosts, two_hosts.addresses), timeout=90)
    for worker in running.workers:
        worker.wait_for("step 5")
    cut(two_hosts, host)
    begin = time.monotonic()
    outcomes = running.wait()
    took = time.monotonic() - begin
    for rank, outcome in enumerate(outcomes):
        assert outcome.status == 1, outcome.stderr[-3000:]
        (last,) = re.findall("^tpk.errors.PeerError: .*", outcome.stderr, re.MULTILINE)[-1:] or [""]
        assert f"rank {1 - rank} ({two_hosts.addresses[1 - rank]}:{PORT})" in last, outcome.stderr[-3000:]
    # One question more than TIMEOUT, the end of the others, and a busy machine.
    assert took < 6 * TIMEOUT
