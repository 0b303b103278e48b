"""Training that loses and gains processes in Horovod's elastic mode."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

pytest.importorskip("horovod", reason="build Horovod with `python -m tpk_horovod.build`")
sys.path.insert(0, str(Path(__file__).parent))

from hosts import HERE, Processes
from tpk_horovod.elastic import run_elastic

import tpk

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def run(tmp_path):
    """Run elastic training on "hosts", which are names of this host."""

    def start(steps, event, hosts):
        (tmp_path / "hosts").write_text("".join(f"{host}:1\n" for host in hosts))
        (tmp_path / "hosts_later").write_text("localhost:1\n127.0.0.1:1\n")
        script = tmp_path / "discover.sh"
        script.write_text(f"#!/bin/sh\ncat {tmp_path}/hosts\n")
        script.chmod(0o755)
        options = ["--min-np", 1, "--max-np", 3, "--host-discovery-script", script, "--network-interface", "lo"]
        options += ["--start-timeout", 300]
        command = [sys.executable, HERE / "trainings.py", "elastic", tmp_path / "result", steps, event]
        with Processes(tmp_path) as processes:
            launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", len(hosts), *options, *command]
            processes.command(map(str, launcher), 0, {"SHARED": str(tmp_path), "HOROVOD_LOG_LEVEL": "fatal"})
            status = processes.wait(0, timeout=600)
            log = processes.log(0)
        lines = [tuple(map(int, line.split())) for line in (tmp_path / "journal").read_text().splitlines()]
        return status, log, lines, pickle.loads((tmp_path / "result").read_bytes())["global_step:0"]

    return start


@pytest.mark.parametrize("rank", [0, 1])
def test_when_one_is_killed_the_other_continues_from_the_last_checkpoint(run, rank):
    _, log, journal, result = run(20, rank, ["localhost", "127.0.0.1"])
    assert result == 20, log
    together = [(step, of) for step, of, size in journal if size == 2]
    alone = [step for step, of, size in journal if size == 1]
    assert max(step for step, _ in together) in (9, 10)
    # The last checkpoint was saved at the end of the second epoch, in step 8.
    assert alone == list(range(9, 21)), log


def test_when_the_chief_is_killed_the_others_continue_together(run):
    _, log, journal, result = run(20, 0, ["localhost", "127.0.0.1", "127.1"])
    assert result == 20, log
    for rank in (0, 1):
        assert [step for step, of, size in journal if (of, size) == (rank, 2)] == list(range(9, 21)), log


def test_a_process_that_joins_continues_from_the_step_of_the_other(run):
    status, log, journal, result = run(400, "join", ["localhost"])
    assert (status, result) == (0, 400), log
    alone = [step for step, of, size in journal if size == 1]
    together = {of: [step for step, each, size in journal if size == 2 and each == of] for of in (0, 1)}
    assert alone == list(range(1, len(alone) + 1))
    assert together[0] == together[1] == list(range(len(alone) + 1, 401)), log


def test_without_horovodrun_it_is_an_error(monkeypatch):
    monkeypatch.delenv("HOROVOD_ELASTIC", raising=False)
    with pytest.raises(tpk.ConfigError, match="--host-discovery-script"):
        run_elastic(lambda: None)
