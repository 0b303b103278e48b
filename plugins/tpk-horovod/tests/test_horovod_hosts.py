"""Horovod on several hosts, which are network namespaces of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("horovod", reason="build Horovod with `python -m tpk_horovod.build`")
NETWORKS = Path(__file__).parents[2] / "tpk-distributed" / "tests"
sys.path[:0] = [str(Path(__file__).parent), str(NETWORKS)]

import networks  # noqa: E402
import trainings  # noqa: E402
from hosts import HERE, Processes  # noqa: E402

pytestmark = [pytest.mark.timeout(900), pytest.mark.parametrize("network", [3], indirect=True)]
in_long_form = pytest.mark.skipif(os.environ.get("TPK_HOSTS") != "all", reason="`nox -s hosts` runs this")

PORT = 7077


@pytest.fixture
def network(request):
    """As many hosts as the test asks for, or a test that is skipped where none can be made."""
    with contextlib.ExitStack() as held:
        try:
            made = held.enter_context(networks.network(request.param))
        except OSError as error:
            pytest.skip(f"needs iproute2, and the right to make network namespaces: {error}")
        yield made


@pytest.fixture
def start(network, tmp_path):
    """A function that starts a function of `trainings` in a process on each host."""
    with Processes(tmp_path) as processes:

        def start(function, *arguments, count=3, env=None):
            processes.running.clear()
            workers = [f"{host}:{PORT}" for host in network.hosts[:count]]
            for rank in range(len(workers)):
                command = [sys.executable, HERE / "trainings.py", function, processes.path(rank, "result"), *arguments]
                config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
                command = network.command(rank, *command, directory=tmp_path)
                processes.command(command, rank, {"TF_CONFIG": json.dumps(config), "RANK": str(rank), **(env or {})})
            return processes

        yield start


def test_three_hosts_train_like_one_process(start, tmp_path, monkeypatch):
    ours = start("train_simply").results()
    monkeypatch.chdir(tmp_path)
    points = trainings.concatenated(trainings.datapoints(3 * trainings.STEPS), 3)
    one = trainings.train("single", points, "adam", steps_per_epoch=trainings.STEPS)
    for values in ours:
        for name in ("hidden:0", "output:0", "bias:0"):
            np.testing.assert_allclose(values[name], one[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=in_long_form)])
def test_the_others_name_the_host_whose_process_was_killed(start, network, rank):
    processes = start("kill_one", rank)
    assert processes.wait(rank) == -signal.SIGKILL
    for other in {0, 1, 2} - {rank}:
        assert processes.wait(other) == 1
        assert f"cannot continue: rank {rank} ({network.hosts[rank]}:{PORT}) has died" in processes.log(other)


class Elastic:
    """Elastic training on hosts that horovodrun reaches by a command in the place of ssh."""

    def __init__(self, network, directory):
        self.network, self.directory = network, directory
        ssh = directory / "bin" / "ssh"
        ssh.parent.mkdir()
        # The last two arguments are the host and a command for its shell.
        enter = f'{sys.executable} {networks.__file__} "$host" {directory} bash -c "$command"'
        ssh.write_text("#!/bin/bash\nfor last; do host=$command; command=$last; done\nexec " + enter + "\n")
        ssh.chmod(0o755)
        discover = directory / "discover.sh"
        discover.write_text(f"#!/bin/sh\ncat {directory}/hosts\n")
        discover.chmod(0o755)

    def run(self, steps, event, hosts):
        for name, these in (("hosts", hosts), ("hosts_later", self.network.hosts)):
            (self.directory / name).write_text("".join(f"{host}:1\n" for host in these))
        options = ["--min-np", 1, "--max-np", 3, "--host-discovery-script", self.directory / "discover.sh"]
        options += ["--network-interface", "eth0", "--start-timeout", 300]
        command = [sys.executable, HERE / "trainings.py", "elastic", self.directory / "result", steps, event]
        launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", len(hosts), *options, *command]
        path = f"{self.directory}/bin:{os.environ['PATH']}"
        environment = {"SHARED": str(self.directory), "PATH": path, "HOROVOD_LOG_LEVEL": "fatal"}
        with Processes(self.directory) as processes:
            processes.command(self.network.command(0, *launcher, directory=self.directory), 0, environment)
            processes.wait(0, timeout=600)
            log = processes.log(0)
        journal = (self.directory / "journal").read_text().splitlines()
        values = pickle.loads((self.directory / "result").read_bytes())
        return log, [tuple(map(int, line.split())) for line in journal], values


def assert_same_bits(of_processes, expected):
    for values in of_processes:
        assert values.keys() == expected.keys()
        for name, value in values.items():
            assert expected[name].tobytes() == value.tobytes(), name


@in_long_form
@pytest.mark.parametrize("rank", [0, 1])
def test_when_a_host_leaves_the_others_end_as_if_they_were_resumed_by_hand(start, network, tmp_path, rank):
    log, journal, ours = Elastic(network, tmp_path).run(20, rank, network.hosts)
    # The last checkpoint before that was saved in step 8.
    assert {step for step, _, size in journal if size == 2} == set(range(9, 21)), log
    by_hand = {"SHARED": str(tmp_path / "by_hand")}
    start("train_in_epochs", 2, env=by_hand).results()
    assert_same_bits(start("train_in_epochs", 5, count=2, env=by_hand).results(), ours)


@in_long_form
def test_a_host_that_joins_ends_as_if_all_were_resumed_by_hand(start, network, tmp_path):
    log, journal, ours = Elastic(network, tmp_path).run(400, "join", network.hosts[:2])
    before = [step for step, each, size in journal if (each, size) == (0, 2)]
    assert before == list(range(1, len(before) + 1))
    for rank in range(3):
        together = [step for step, each, size in journal if (each, size) == (rank, 3)]
        assert together == list(range(len(before) + 1, 401)), log
    by_hand = {"SHARED": str(tmp_path / "by_hand")}
    start("train_until", len(before), count=2, env=by_hand).results()
    assert_same_bits(start("train_in_epochs", 100, env=by_hand).results(), ours)
