"""When a process dies, hangs, is late or never starts, the others end with an error instead of waiting forever."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from pathlib import Path

import attrs
import pytest

pytest.importorskip("horovod", reason="build Horovod with `python -m tpk_horovod.build`")
sys.path.insert(0, str(Path(__file__).parent))

from hosts import Processes
from tpk_distributed import Cluster
from tpk_distributed.launch.tasks import reserved_cluster
from tpk_horovod.strategy import HorovodStrategy

import tpk
from tpk.errors import PeerError

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def processes(tmp_path):
    with Processes(tmp_path) as started:
        yield started


@pytest.mark.parametrize("rank", [0, 1])
def test_when_one_is_killed_the_other_ends_with_an_error(processes, rank):
    processes.start("kill_one", rank)
    assert processes.wait(rank) == -signal.SIGKILL
    assert processes.wait(1 - rank) == 1
    assert f"PeerError: rank {1 - rank} cannot continue: rank {rank} (127.0.0.1:" in processes.log(1 - rank)


def test_a_late_process_is_reported_and_then_an_error(processes):
    processes.start("delay_one", 1, 15)
    assert processes.wait(0) == 1
    log = processes.log(0)
    # On a busy machine, it takes some seconds longer.
    reported = re.search(r"rank 0 has been waiting for (\d+) s for rank 1 \(127\.0\.0\.1:", log)
    given_up = re.search(r"PeerError: rank 0 has waited for (\d+) s for rank 1 \(127\.0\.0\.1:", log)
    assert 5 <= int(reported[1]) <= int(given_up[1]) >= 15
    processes.running[1].communicate(b"\n", timeout=300)
    assert processes.running[1].returncode == 1
    assert "PeerError" in processes.log(1)


def test_a_process_that_does_not_answer_is_an_error(processes):
    processes.start("freeze_one", 1, 15)
    assert processes.wait(0) == 1
    assert "PeerError" in processes.log(0)


def test_models_that_differ_are_an_error_before_the_first_step(processes):
    processes.start("differ")
    for rank in (0, 1):
        assert processes.wait(rank) == 1
        assert "MismatchError: the processes of this training differ. In rank 1: variable" in processes.log(rank)


def test_options_that_differ_are_an_error_before_the_first_step(processes):
    processes.start("differ_in_options")
    for rank in (0, 1):
        assert processes.wait(rank) == 1
        log = processes.log(rank)
        assert "MismatchError: the processes of this training differ. In rank 1: compression is fp16" in log


def test_a_process_that_never_starts_is_named(processes):
    processes.start("start_only", ranks=[0])
    assert processes.wait(0) == 1
    assert "PeerError: rank 0 has waited for 3 s, but rank 1 (127.0.0.1:" in processes.log(0)


def test_a_chief_that_never_starts_is_an_error():
    with reserved_cluster(2) as cluster:
        strategy = HorovodStrategy(timeouts={"start": 2}, cluster=attrs.evolve(cluster, index=1))
        with pytest.raises(PeerError, match=r"the chief does not answer at 127\.0\.0\.1"):
            strategy.join()
        strategy.leave()


@pytest.mark.parametrize("address", ["[::1]:2", "host.invalid:2"])
def test_a_host_without_ipv4_is_an_error_at_once(address):
    first = "[::1]:1" if "::1" in address else "0.0.0.0:1"
    config = {"cluster": {"worker": [first, address]}, "task": {"type": "worker", "index": 0}}
    with pytest.raises(tpk.ConfigError, match=r"finds no IPv4 address for .*, and Horovod uses no other"):
        HorovodStrategy(cluster=config).join()


def test_a_port_in_use_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as other:
        strategy = HorovodStrategy(cluster=Cluster(workers=[f"127.0.0.1:{other.getsockname()[1]}", "127.0.0.2:1"]))
        with pytest.raises(PeerError, match=r"the chief cannot listen at 127\.0\.0\.1:.*Choose another port"):
            strategy.join()


def test_parameter_servers_are_an_error(monkeypatch):
    config = {"cluster": {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}, "task": {"type": "ps", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(tpk.ConfigError, match="Start only workers"):
        HorovodStrategy().join()


def test_a_missing_cluster_is_an_error_that_says_how_to_start_processes(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(tpk.ConfigError, match=r"tpk launch -n 2(.|\n)*horovodrun -np 2"):
        HorovodStrategy().join()


def test_starting_with_mpi_needs_horovod_with_mpi(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    with pytest.raises(tpk.ConfigError, match="was built without it"):
        HorovodStrategy().join()
