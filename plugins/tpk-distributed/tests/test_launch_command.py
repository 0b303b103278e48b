from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest
from tpk_distributed.launch.tasks import reserved_cluster

from tpk.cli.main import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux has them")

COMMAND = [sys.executable, "-c", "import sys; from tpk.cli.main import main; sys.exit(main())", "launch"]
PREFACE = """
import json, os, signal, subprocess, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
tag = task["type"] + str(task["index"])

def stay():
    print("stays", flush=True)
    while True:
        signal.pause()
"""


@pytest.fixture
def script(tmp_path):
    """A function that writes a script."""

    def write(text):
        path = tmp_path / "script.py"
        path.write_text(PREFACE + textwrap.dedent(text))
        return str(path)

    return write


@pytest.fixture
def started():
    """A function that starts ``tpk launch``."""
    processes = []

    def start(*arguments, **options):
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "bufsize": 1, **options},
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


@pytest.fixture
def launched(started):
    """A function that runs ``tpk launch``, and returns exit status, stdout and stderr."""

    def launch(*arguments):
        process = started(*arguments)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    return launch


@pytest.fixture
def held(tmp_path):
    """A named pipe. A reader reaches its end when no process holds it open for writing."""
    path = tmp_path / "held"
    os.mkfifo(path)
    return path


def await_lines(stream, *texts):
    """Read lines until each text was in one of them."""
    missing, seen = set(texts), []
    while missing:
        line = stream.readline()
        assert line, f"{missing} never came: {seen}"
        seen.append(line)
        missing -= {text for text in missing if text in line}
    return seen


def test_each_process_knows_its_task_and_its_output_is_tagged(script, launched, tmp_path):
    for worker in (0, 1):
        os.mkfifo(tmp_path / f"worker{worker}")
    path = script(
        f"""
        print(os.environ["TF_CONFIG"], *sys.argv[1:])
        print("a warning", file=sys.stderr)
        # The parameter server would be ended with the workers, so they wait for it.
        if task["type"] == "worker":
            open(os.path.join({str(tmp_path)!r}, tag)).read()
        else:
            for worker in (0, 1):
                open(os.path.join({str(tmp_path)!r}, f"worker{{worker}}"), "w").close()
        """
    )
    status, out, err = launched("-n", "2", "--ps", "1", path, "-n", "7", "--ps")
    assert status == 0
    said = dict(re.findall(r"^\[(\w+)\] (\{.*\}) -n 7 --ps$", out, re.MULTILINE))
    configs = {tag: json.loads(text) for tag, text in said.items()}
    assert {tag: config["task"] for tag, config in configs.items()} == {
        "0": {"type": "worker", "index": 0},
        "1": {"type": "worker", "index": 1},
        "ps0": {"type": "ps", "index": 0},
    }
    cluster = configs["0"]["cluster"]
    assert all(config["cluster"] == cluster for config in configs.values())
    assert [len(cluster["worker"]), len(cluster["ps"])] == [2, 1]
    assert len({*cluster["worker"], *cluster["ps"]}) == 3
    assert sorted(err.splitlines()) == ["[0] a warning", "[1] a warning", "[ps0] a warning"]


def test_parameter_servers_end_with_the_workers(script, launched):
    path = script("if task['type'] == 'ps': stay()")
    assert launched("-n", "1", "--ps", "2", path)[0] == 0


def test_when_one_process_fails_the_others_end_and_its_traceback_comes_last(script, launched):
    path = script(
        """
        if task["index"] == 0:
            stay()
        sys.stdout.write("no end of line")
        print("a word before", file=sys.stderr)
        raise ValueError("bad data")
        """
    )
    status, out, err = launched("-n", "2", path)
    assert status == 1
    assert "[1] no end of line\n" in out
    heading, last = err.split("The end of its stderr:\n")
    assert "tpk: rank 1 failed with exit status 1; the others are ended." in heading
    assert "[1] ValueError: bad data" in heading
    assert last.startswith("Traceback (most recent call last)")
    assert last.endswith("ValueError: bad data\n")


def test_a_process_that_lost_a_peer_is_not_the_first_failure(script, launched, held):
    path = script(
        f"""
        if task["index"] == 0:
            holds = open({str(held)!r}, "w")
            sys.exit("tpk.errors.PeerError: rank 1 is gone")
        open({str(held)!r}).read()
        sys.stderr.write("no memory left")
        sys.exit(5)
        """
    )
    status, _, err = launched("-n", "2", path)
    assert status == 5
    assert err.endswith("tpk: rank 1 failed with exit status 5. The end of its stderr:\nno memory left\n")


def test_a_process_that_lost_a_hanging_peer_is_the_first_failure(script, launched, monkeypatch):
    patience = "import tpk_distributed.launch.launched_processes as launching; launching.SETTLE_SECONDS = 0.1; "
    command = [*COMMAND[:2], patience + COMMAND[2], *COMMAND[3:]]
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", command)
    path = script(
        """
        if task["index"] == 1:
            stay()
        sys.exit("tpk.errors.PeerError: rank 1 is late")
        """
    )
    status, _, err = launched("-n", "2", path)
    assert status == 1
    assert err.endswith("PeerError: rank 1 is late\n")


def test_the_exit_status_names_the_signal_that_killed_a_process(script, launched):
    path = script("os.kill(os.getpid(), signal.SIGKILL) if task['index'] else stay()")
    status, _, err = launched("-n", "2", path)
    assert status == 128 + signal.SIGKILL
    assert err.endswith(
        "tpk: rank 1 was killed by SIGKILL (by the kernel if memory ran out), and wrote nothing to stderr.\n"
    )


def test_a_process_that_does_not_end_in_time_is_killed(script, launched, held):
    path = script(
        f"""
        if task["index"] == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open({str(held)!r}, "w") as ready:
                ready.write("ready")
            stay()
        open({str(held)!r}).read()
        sys.exit(3)
        """
    )
    status, _, err = launched("-n", "2", "--grace", "0.1", path)
    assert status == 3
    assert "tpk: rank 0 is killed: it did not end within 0.1 s.\n" in err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_go_to_each_worker_once_and_not_to_parameter_servers(script, started, signum):
    path = script(
        """
        def report(signum, frame):
            print(tag, "got", signum, flush=True)
            if task["type"] == "worker":
                sys.exit(0)

        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(signum, report)
        print("ready", flush=True)
        while True:
            signal.pause()
        """
    )
    process = started("-n", "2", "--ps", "1", "--grace", "0", path)
    await_lines(process.stdout, "[0] ready", "[1] ready", "[ps0] ready")
    process.send_signal(signum)
    out, _ = process.communicate(timeout=300)
    assert out.count(f"worker0 got {signum:d}\n") == out.count(f"worker1 got {signum:d}\n") == 1
    # A parameter server gets SIGTERM when it is no longer needed.
    assert signum == signal.SIGTERM or f"ps0 got {signum:d}\n" not in out
    assert process.returncode == 0


def test_an_end_by_a_forwarded_signal_is_not_a_failure(script, started):
    process = started("-n", "2", script("stay()"))
    await_lines(process.stdout, "[0] stays", "[1] stays")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    assert err == ""


LEAVES_CHILDREN = """
child = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
with open({held!r}, "w") as held:
    begun = subprocess.Popen(
        [sys.executable, "-c", child], pass_fds=[held.fileno()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    begun.stdout.readline()
    {then}
"""


def test_no_process_is_left_when_the_launcher_is_killed(script, started, held):
    path = script(LEAVES_CHILDREN.format(held=str(held), then="stay()"))
    process = started("-n", "2", "--grace", "0.1", path)
    with open(held) as reader:
        await_lines(process.stdout, "[0] stays", "[1] stays")
        process.kill()
        # This ends when no process holds the pipe.
        assert reader.read() == ""


def test_no_children_of_the_processes_are_left(script, started, held):
    path = script(LEAVES_CHILDREN.format(held=str(held), then="print('done', flush=True)"))
    process = started("-n", "2", path)
    with open(held) as reader:
        await_lines(process.stdout, "[0] done", "[1] done")
        assert reader.read() == ""
    assert process.wait(timeout=300) == 0


def test_no_process_is_left_when_the_output_is_closed(script, started, held):
    path = script(LEAVES_CHILDREN.format(held=str(held), then="while True: print('more', flush=True)"))
    process = started("-n", "2", path)
    with open(held) as reader:
        await_lines(process.stdout, "more")
        process.stdout.close()
        assert reader.read() == ""
    assert process.wait(timeout=300) == 1


SSH = """\
#!/bin/sh
# $1 and $2 are an option, $3 is the host, $4 the command. In a session of its own, signals do not reach it.
export HOST_OF_SSH="$3"
cd / && exec setsid sh -c "$4"
"""


@pytest.fixture
def by_ssh(tmp_path, monkeypatch):
    """Arguments for two hosts, both of which are this one: the command ssh is a script, which starts at ``/``."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    with reserved_cluster(1) as reserved:
        yield ["-n", "2", "--hosts", "one,user@two", "--master", *reserved.workers]


def test_ssh_starts_a_launcher_at_each_host_in_this_directory(script, launched, by_ssh, tmp_path):
    path = script("print(os.environ['HOST_OF_SSH'], os.getcwd(), *sys.argv[1:])")
    status, out, err = launched(*by_ssh, os.path.basename(path), "a b", "-n")
    hosts = ["one", "one", "user@two", "user@two"]
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == [f"[{rank}] {host} {tmp_path} a b -n" for rank, host in enumerate(hosts)]


def test_a_rank_that_fails_at_one_host_ends_all_by_ssh(script, launched, by_ssh):
    status, _, err = launched(*by_ssh, script("stay() if task['index'] != 3 else sys.exit(7)"))
    assert status == 7
    assert "tpk: rank 3 failed with exit status 7" in err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_by_ssh_when_the_launcher_ends(script, started, by_ssh, held, signum):
    process = started(*by_ssh, script(f"held = open({str(held)!r}, 'w')\nstay()"))
    with open(held) as reader:
        await_lines(process.stdout, *(f"[{rank}] stays" for rank in range(4)))
        process.send_signal(signum)
        assert reader.read() == ""
    assert process.wait(timeout=300) == (128 + signum if signum == signal.SIGTERM else -signum)


def test_only_the_last_state_of_a_bar_is_shown(script, launched):
    path = script("sys.stderr.write('\\r 10%\\r 50%\\r100%\\n\\rthe end')")
    assert launched("-n", "1", path)[2] == "[0] 100%\n[0] the end\n"


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, {"worker0": "0,1", "worker1": "2,3", "ps0": ""}),
        ("7,5,3,1", {"worker0": "7,5", "worker1": "3,1", "ps0": ""}),
    ],
)
def test_each_worker_sees_gpus_of_its_own(script, launched, monkeypatch, tmp_path, visible, seen):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    path = script(
        f"""
        folder = {str(tmp_path)!r}
        with open(os.path.join(folder, tag), "w") as file:
            file.write(os.environ["CUDA_VISIBLE_DEVICES"])
        os.rename(os.path.join(folder, tag), os.path.join(folder, tag + ".txt"))
        while not os.path.exists(os.path.join(folder, "ps0.txt")):  # It is ended when all workers have.
            time.sleep(0.01)
        """
    )
    assert launched("-n", "2", "--ps", "1", "--gpus", "2", path)[0] == 0
    assert {name: (tmp_path / f"{name}.txt").read_text() for name in seen} == seen


def test_threads_are_limited_on_request(script, launched):
    path = script("print(*[os.environ.get('TF_NUM_%s_THREADS' % each) for each in ('INTRAOP', 'INTEROP')])")
    assert launched("-n", "1", "--threads", "3", path)[1] == "[0] 3 3\n"
    assert launched("-n", "1", path)[1] == "[0] None None\n"


def test_a_module_is_found_as_python_finds_it(tmp_path, monkeypatch, launched):
    (tmp_path / "module_of_launch_test.py").write_text("import sys; print(__name__, sys.argv[1:])")
    monkeypatch.chdir(tmp_path)
    assert launched("-n", "1", "-m", "module_of_launch_test", "-x")[1] == "[0] __main__ ['-x']\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.py"], "Missing option '-n'"),
        (["-n", "0", "x.py"], "Invalid value for '-n': 0 is not in the range x>=1."),
        (["-n", "1", "--ps", "-1", "x.py"], "Invalid value for '--ps': -1 is not in the range x>=0."),
        (["-n", "1", "--gpus", "-1", "x.py"], "Invalid value for '--gpus': -1 is not in the range x>=0."),
        (["-n", "1", "--threads", "0", "x.py"], "Invalid value for '--threads': 0 is not in the range x>=1."),
        (["-n", "1", "--grace", "-2", "x.py"], "Invalid value for '--grace': -2.0 is not in the range x>=0."),
        (["-n", "2"], "Missing argument 'SCRIPT"),
        (["-n", "1", "--node-rank", "1", "x.py"], "--nodes 1 needs --node-rank, from 0 to 0"),
        (["-n", "1", "--nodes", "2", "--master", "one:1", "x.py"], "--nodes 2 needs --node-rank, from 0 to 1"),
        (["-n", "1", "--nodes", "2", "--node-rank", "0", "x.py"], "and --master HOST:PORT."),
        (["-n", "1", "--hosts", "one,two", "--nodes", "2", "x.py"], "leave out --nodes and --node-rank"),
    ],
)
def test_wrong_usage_points_to_the_help(arguments, message, capsys):
    assert main(["launch", *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown and "Try 'tpk launch --help'" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "2", "nosuch.py"], "the script 'nosuch.py' does not exist in "),
        (["-n", "2", "-m", "nosuch_of_launch.train"], "the module 'nosuch_of_launch.train' is neither"),
    ],
)
def test_a_missing_script_is_an_error_of_one_line(arguments, message, capsys, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert main(["launch", *arguments]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"tpk: {message}")
    assert shown.count("\n") == 1


def test_more_gpus_than_are_visible_are_an_error_of_one_line(script, capsys, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert main(["launch", "-n", "2", "--gpus", "2", script("")]) == 1
    shown = capsys.readouterr().err
    assert shown == "tpk: --gpus 2 needs 4 GPUs at this host, but CUDA_VISIBLE_DEVICES is '0,1,2'.\n"


def test_hosts_need_ssh(script, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["launch", "-n", "2", "--hosts", "one,two", script("")]) == 1
    assert capsys.readouterr().err.startswith("tpk: --hosts needs the command ssh, which is not on the PATH. ")


def test_a_process_of_a_cluster_cannot_launch_another(script, capsys, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert main(["launch", "-n", "2", script("")]) == 1
    assert "unset TF_CONFIG" in capsys.readouterr().err


def test_the_help_names_launchers_for_several_hosts(capsys):
    assert main(["launch", "--help"]) == 0
    shown = capsys.readouterr().out
    for way in ("horovodrun", "srun", "Kubernetes"):
        assert way in shown
