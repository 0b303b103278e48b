"""``tpk launch`` on several hosts: a launcher at each, which the user starts, or ssh."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.once, pytest.mark.parametrize("network", [2], indirect=True)]

MANUAL = Path(__file__).parents[3] / "docs" / "howto" / "several-hosts.md"
LAUNCH = [sys.executable, "-m", "tpk", "launch"]
PREFACE = """
import json, os, signal, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]

def stay():
    print("stays", flush=True)
    while True:
        signal.pause()
"""
TRAINS = """
import sys
sys.path.insert(0, {tests!r})
import collective_trainings as trainings
import tpk

trainer = tpk.SingleCostTrainer({strategy!r})
model = trainings.Model()
source = tpk.FeedInput(trainings.batches(40))
trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
if trainer.train_op is not None:
    values = trainings.Values()
    trainer.train(callbacks=[values], steps_per_epoch=10, max_epoch=1)
    print("sum is", repr(sum(float(values.values[name].sum()) for name in values.trained)), flush=True)
"""
SSHD = """
Port 22
HostKey {directory}/key
AuthorizedKeysFile {directory}/key.pub
StrictModes no
UsePAM no
PidFile none
"""


@pytest.fixture
def script(tmp_path):
    """A function that writes a script."""

    def write(text):
        path = tmp_path / "script.py"
        path.write_text(PREFACE + textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def start(network, tmp_path):
    """A function that starts a command at a host, with its output in a file."""
    processes = []

    def start(number, *command, **environment):
        output = (tmp_path / f"out{len(processes)}").open("w+")
        process = subprocess.Popen(
            network.command(number, *command),
            cwd=tmp_path,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        process.output = output
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.output.close()


def text_of(process):
    process.output.seek(0)
    return process.output.read()


def ended(process):
    """Return how a process has ended, and what it has written."""
    status = process.wait(300)
    return status, text_of(process)


def wait_for(process, *texts):
    end = time.monotonic() + 3000
    while not all(text in text_of(process) for text in texts):
        assert time.monotonic() < end and process.poll() is None, text_of(process)
        time.sleep(0.1)


def start_on_both(network, start, *arguments):
    master = f"{network.hosts[0]}:29500"
    return [
        start(rank, *LAUNCH, "--nodes=2", f"--node-rank={rank}", f"--master={master}", *arguments) for rank in (0, 1)
    ]


def test_ranks_count_on_at_the_next_host_which_has_another_number_of_them(network, start, script):
    path = script("print(socket.gethostname(), len(config['cluster']['worker']), flush=True)")
    master = f"{network.hosts[0]}:29500"
    first, second = (
        start(rank, *LAUNCH, f"-n{count}", "--nodes=2", f"--node-rank={rank}", f"--master={master}", path)
        for rank, count in ((0, 1), (1, 2))
    )
    waiting = f"tpk: waiting for the launchers of all 2 hosts to meet at {master}"
    assert ended(first) == (0, f"{waiting}\n[0] {network.hosts[0]} 3\n")
    status, written = ended(second)
    ranks = [f"[{rank}] {network.hosts[1]} 3" for rank in (1, 2)]
    assert (status, sorted(written.splitlines())) == (0, [*ranks, waiting])


@pytest.mark.parametrize(("strategy", "servers"), [("collective", 0), ("distributed_replicated", 1)])
def test_two_hosts_with_two_workers_each_train_together(network, start, tmp_path, strategy, servers):
    path = tmp_path / "train.py"
    path.write_text(TRAINS.format(tests=os.path.dirname(__file__), strategy=strategy))
    outcomes = [ended(each) for each in start_on_both(network, start, "-n2", f"--ps={servers}", path)]
    assert [status for status, _ in outcomes] == [0, 0], outcomes
    sums = dict(re.findall(r"\[(\d)\] sum is (.*)", "".join(written for _, written in outcomes)))
    assert sorted(sums) == ["0", "1", "2", "3"]
    assert len(set(sums.values())) == 1


def test_a_rank_that_fails_ends_all_hosts(network, start, script):
    path = script("stay() if task['index'] != 3 else sys.exit(7)")
    first, second = start_on_both(network, start, "-n2", path)
    assert ended(second)[0] == 7
    status, written = ended(first)
    assert status == 7
    assert "tpk: rank 3 failed with exit status 7; the processes of this host are ended.\n" in written


def test_a_launcher_that_is_killed_ends_all_hosts(network, start, script):
    first, second = start_on_both(network, start, "-n2", script("stay()"))
    wait_for(first, "[0] stays", "[1] stays")
    wait_for(second, "[2] stays", "[3] stays")
    os.killpg(second.pid, signal.SIGKILL)
    status, written = ended(first)
    assert status == 1
    assert re.search(r"tpk: the launcher at node 1 \(10\.77\.0\.2\) is gone; the processes of this host", written)


def test_a_host_that_comes_twice_is_refused(network, start, script):
    path = script("stay()")
    first, second = start_on_both(network, start, "-n1", path)
    wait_for(first, "[0] stays")
    wait_for(second, "[1] stays")
    third = start(1, *LAUNCH, "-n1", "--nodes=3", "--node-rank=0", f"--master={network.hosts[0]}:29501", path)
    fourth = start(0, *LAUNCH, "-n1", "--nodes=2", "--node-rank=1", f"--master={network.hosts[1]}:29501", path)
    status, written = ended(fourth)
    assert status == 1 and "node 1 of 2 has come" in written and "there are 3" in written
    for each in (first, second, third):
        each.terminate()
    assert ended(second)[0] == 128 + signal.SIGTERM


def test_an_unknown_first_host_is_an_error_at_once(network, start, script):
    path = script("stay()")
    launcher = start(1, *LAUNCH, "-n1", "--nodes=2", "--node-rank=1", "--master=host.invalid:29500", path)
    status, written = ended(launcher)
    assert status == 1 and "the host of host.invalid:29500 is unknown" in written


def test_the_job_of_the_manual_finds_its_pods_in_any_order(network, start, script, tmp_path):
    (command,) = re.findall(r"args: \['(exec tpk launch .*)'\]", MANUAL.read_text())
    assert "train-0.train" in command
    command = command.replace("train-0.train", network.hosts[0])
    script("print(task['index'], socket.gethostname(), flush=True)").rename(tmp_path / "train.py")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    second = start(1, "sh", "-c", command, JOB_COMPLETION_INDEX="1", **environment)
    first = start(0, "sh", "-c", command, JOB_COMPLETION_INDEX="0", **environment)
    for rank, pod in enumerate((first, second)):
        status, written = ended(pod)
        assert (status, written.splitlines()[1:]) == (0, [f"[{rank}] {rank} {network.hosts[rank]}"])


@pytest.fixture
def with_ssh(network, start, tmp_path):
    """An sshd at each host; the environment has a command ssh that logs in there without a question."""
    sshd = shutil.which("sshd", path="/usr/sbin:/sbin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("needs sshd and ssh: Debian has openssh-server")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    (tmp_path / "sshd_config").write_text(SSHD.format(directory=tmp_path))
    os.makedirs("/run/sshd", exist_ok=True)
    for number in range(len(network.hosts)):
        start(number, sshd, "-D", "-e", "-f", tmp_path / "sshd_config")
    command = tmp_path / "bin" / "ssh"
    command.parent.mkdir()
    options = f"-i {tmp_path}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    command.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -o ConnectionAttempts=20 {options} "$@"\n')
    command.chmod(0o755)
    return {"PATH": f"{command.parent}:{os.environ['PATH']}"}


def test_ssh_starts_the_launchers(network, start, script, with_ssh):
    path = script("print(socket.gethostname(), os.getcwd(), flush=True)")
    status, written = ended(start(0, *LAUNCH, "-n2", f"--hosts={','.join(network.hosts)}", path, **with_ssh))
    expected = [f"[{rank}] {network.hosts[rank // 2]} {path.parent}" for rank in range(4)]
    assert (status, sorted(written.splitlines())) == (0, expected)


def test_a_rank_that_fails_at_a_host_ends_the_training_by_ssh(network, start, script, with_ssh):
    path = script("stay() if task['index'] != 3 else sys.exit(7)")
    status, written = ended(start(0, *LAUNCH, "-n2", f"--hosts={','.join(network.hosts)}", path, **with_ssh))
    assert status == 7
    assert "tpk: rank 3 failed with exit status 7" in written


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_the_workers_by_ssh_and_none_is_left(network, start, script, with_ssh, signum):
    launcher = start(0, *LAUNCH, "-n1", f"--hosts={','.join(network.hosts)}", script("stay()"), **with_ssh)
    wait_for(launcher, "[0] stays", "[1] stays")
    launcher.send_signal(signum)
    status, _ = ended(launcher)
    assert status == (128 + signum if signum == signal.SIGTERM else -signum)
    end = time.monotonic() + 300
    while workers := [pid for pid in network.processes() if b"script.py" in command_of(pid)]:
        assert time.monotonic() < end, workers
        time.sleep(0.1)


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""
