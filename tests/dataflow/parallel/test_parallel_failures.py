"""Workers that fail, die, hang or are left alone: an error that says so, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from itertools import islice
from multiprocessing import spawn

import numpy as np
import psutil
import pytest

from tpk.dataflow import DataFromGenerator, DataFromList, MapData, MultiProcessMapData, MultiProcessRunner
from tpk.dataflow.base import close_dataflow
from tpk.dataflow.parallel import blocks
from tpk.errors import ConfigError, InputError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="worker processes need Unix sockets")


def run_generator(generator, **options):
    return MultiProcessRunner(DataFromGenerator(generator), 1, **options)


_BEFORE = set()


@pytest.fixture(autouse=True)
def know_who_was_there():
    """Other tests of the same session may keep a process."""
    _BEFORE.clear()
    _BEFORE.update(children())


def children():
    return {child.pid for child in psutil.Process().children(recursive=True)} - _BEFORE


def wait_until_gone(pids, seconds=30):
    """Wait until none of the processes runs; those that do are killed, and it is an error."""
    alive = []
    for pid in pids:
        try:
            alive.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            pass
    _, alive = psutil.wait_procs(alive, timeout=seconds)
    alive = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    for process in alive:
        process.kill()
    assert not alive


def test_an_exception_arrives_with_the_traceback_from_the_worker():
    def reads_files():
        yield [1]
        raise FileNotFoundError(2, "no such image", "cat.png")

    flow = iter(run_generator(reads_files))
    assert next(flow) == [1]
    with pytest.raises(FileNotFoundError, match="no such image") as caught:
        next(flow)
    assert "in worker 1 of 1 of MultiProcessRunner" in str(caught.value.__cause__)
    assert "reads_files" in str(caught.value.__cause__)


@pytest.mark.parametrize("error", [EOFError, BrokenPipeError, ConnectionResetError])
def test_an_exception_that_a_lost_connection_would_raise_is_still_the_users(error):
    def reads_files():
        yield [1]
        raise error("in the user's file")

    with pytest.raises(error, match="in the user's file"):
        list(run_generator(reads_files))


def test_an_exception_that_cannot_be_pickled_is_told():
    def reads_files():
        class PickyError(Exception):
            def __init__(self, path, line):
                super().__init__(f"{path}: {line}")

        yield [1]
        raise PickyError("cat.png", 3)

    with pytest.raises(InputError, match=r"worker 1 of 1 of MultiProcessRunner failed: .*PickyError: cat.png: 3"):
        list(run_generator(reads_files))


def test_a_flow_that_leaves_its_process_is_an_error():
    def leaves():
        yield [1]
        raise SystemExit(0)

    with pytest.raises(InputError, match=r"failed: SystemExit"):
        list(run_generator(leaves))


def test_a_function_that_fails_in_a_map_arrives():
    def fails(datapoint):
        raise ValueError(f"bad {datapoint}")

    with pytest.raises(ValueError, match="bad 0") as caught:
        list(MultiProcessMapData(DataFromList([0]), 1, fails))
    assert "in worker 1 of 1 of MultiProcessMapData" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"killed by signal 9 \(SIGKILL\); .* out of memory"),
        (lambda: os._exit(3), "exited with status 3"),
        (lambda: os.abort(), r"signal 6 \(SIGABRT\)[\s\S]*dies_here"),
    ],
)
def test_a_worker_that_dies_is_named_with_the_reason(end, told):
    def dies_here():
        yield [1]
        end()

    flow = iter(run_generator(dies_here))
    with pytest.raises(InputError, match=rf"worker 1 of 1 of MultiProcessRunner \(process \d+\) died: .*{told}"):
        list(flow)


def test_a_worker_that_is_killed_while_it_is_waited_for():
    def waits_for_ever():
        import threading

        yield [os.getpid()]
        threading.Event().wait()

    flow = iter(run_generator(waits_for_ever))
    (pid,) = next(flow)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(InputError, match="SIGKILL"):
        next(flow)


def test_a_worker_that_dies_in_a_map_is_named():
    flow = MultiProcessMapData(DataFromList(list(range(10))), 2, lambda number: os._exit(4) if number == 5 else number)
    with pytest.raises(InputError, match=r"worker 2 of 2 of MultiProcessMapData \(process \d+\) died: .*status 4"):
        list(flow)


def test_after_a_failure_the_flow_can_be_iterated_again(tmp_path):
    marker = tmp_path / "failed"

    def fails_once():
        yield [1]
        if not marker.exists():
            marker.touch()
            raise KeyError("once")
        yield [2]

    flow = run_generator(fails_once)
    with pytest.raises(KeyError):
        list(flow)
    assert list(flow) == [[1], [2]]
    close_dataflow(flow)


def test_a_worker_that_hangs_is_reported_with_its_stack(tmp_path, caplog, when_logged):
    go_on = tmp_path / "go_on"

    def stuck_in_this_function():
        import threading

        while not go_on.exists():
            threading.Event().wait(0.01)
        yield ["there"]

    when_logged("stuck_in_this_function", go_on.touch)
    flow = run_generator(stuck_in_this_function)
    flow.warn_after = 0.1
    assert list(flow) == [["there"]]
    told = next(text for text in caplog.messages if "stuck_in_this_function" in text)
    assert re.match(
        r"worker 1 of 1 of MultiProcessRunner \(process \d+\) has delivered nothing for \S+ s; it is at\n", told
    )
    close_dataflow(flow)


@pytest.fixture
def set_executable():
    """Set the interpreter of worker processes for a test."""
    before = spawn.get_executable()
    yield spawn.set_executable
    spawn.set_executable(before)


def test_of_a_worker_that_does_not_start_that_is_told(tmp_path, caplog, set_executable, when_logged):
    go_on = tmp_path / "go_on"
    late = tmp_path / "python"
    late.write_text(f'#!/bin/sh\nuntil [ -e "{go_on}" ]; do sleep 0.01; done\nexec "{sys.executable}" "$@"\n')
    late.chmod(0o700)
    set_executable(str(late))
    when_logged("still starting", go_on.touch)
    flow = run_generator(lambda: iter([["there"]]))
    flow.warn_after = 0.1
    assert list(flow) == [["there"]]
    assert "has delivered nothing for 0.1 s; it is still starting" in caplog.text
    close_dataflow(flow)


def test_what_cannot_be_pickled_is_refused_with_a_remedy():
    import threading

    lock = threading.Lock()
    flow = MapData([[1]], lambda datapoint: lock and datapoint)
    with pytest.raises(ConfigError, match=r"worker 1 of 2 .*cannot be sent to another process: .*lock.*reset_state"):
        list(MultiProcessRunner(flow, 2))
    assert not children()


def test_what_cannot_be_imported_there_is_told(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, types
            from tpk.dataflow import MapData, MultiProcessRunner

            module = types.ModuleType("only_here")
            exec("def double(x): return x * 2", module.__dict__)
            sys.modules["only_here"] = module
            try:
                list(MultiProcessRunner(MapData([1], module.double), 1))
            except ModuleNotFoundError as error:
                print(error)
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=280)
    assert "No module named 'only_here'" in done.stdout


def test_no_room_for_shared_memory_is_told():
    def large():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        yield [np.zeros(100)]
        yield [np.zeros(1_000_000)]

    flow = iter(run_generator(large))
    assert next(flow)[0].shape == (100,)
    with pytest.raises(InputError, match=r"no room for 8,\d+,\d+ bytes of shared memory.*smaller batches"):
        next(flow)


def test_shared_memory_has_no_name_even_where_it_must_be_a_file(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    descriptor = blocks.create_file()
    file = blocks.BlockFile(descriptor)
    assert list(tmp_path.iterdir()) == []
    for text in (b"abc", b"xyz"):
        file.reserve(8192)
        file.map_next(8192)[:3] = text
    assert os.fstat(descriptor).st_size == 2 * 8192
    assert os.pread(descriptor, 3, 0) == b"abc"
    assert os.pread(descriptor, 3, 8192) == b"xyz"


@pytest.mark.parametrize(
    "use",
    [
        list,
        lambda flow: list(islice(flow, 3)),
        lambda flow: None,
        lambda flow: (list(flow), list(islice(flow, 3)), list(flow)),
    ],
    ids=["to the end", "in part", "not at all", "in several passes"],
)
@pytest.mark.parametrize("end", [close_dataflow, lambda flow: None], ids=["closed", "dropped"])
def test_no_process_is_left(use, end):
    flow = MultiProcessRunner(DataFromList([[np.zeros(1000)]] * 10), 2)
    use(flow)
    end(flow)
    del flow
    assert not children()


def script_with_a_worker(tmp_path, after):
    """Start a script whose worker waits forever; return it, and the worker's process id."""
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, signal, sys, threading
            from tpk.dataflow import DataFromGenerator, MultiProcessRunner

            def takes_for_ever():
                yield os.getpid()
                threading.Event().wait()

            flow = iter(MultiProcessRunner(DataFromGenerator(takes_for_ever), 1))
            print(next(flow), flush=True)
            {after}
            """
        )
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path, number):
    process, worker = script_with_a_worker(tmp_path, "next(flow)")
    with process:
        process.send_signal(number)
        try:
            assert process.wait(30) != 0
        finally:
            process.kill()
        wait_until_gone([worker])


def test_workers_end_with_their_parent_though_a_fork_of_it_lives_on(tmp_path):
    # It has all descriptors of the parent.
    fork = "if not os.fork():\n                signal.pause()\n            next(flow)"
    process, worker = script_with_a_worker(tmp_path, fork)
    with process:
        try:
            wait_until(lambda: len(psutil.Process(process.pid).children()) == 2)
        finally:
            others = [child.pid for child in psutil.Process(process.pid).children() if child.pid != worker]
            process.kill()
            process.wait(30)
            try:
                wait_until_gone([worker], seconds=10)
            finally:
                for other in others:
                    os.kill(other, signal.SIGKILL)


def wait_until(holds, seconds=30):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_workers_outlive_the_thread_that_started_them():
    flow = MultiProcessRunner(DataFromList([[number] for number in range(1000)]), 1, num_prefetch=1)
    datapoints = []
    thread = threading.Thread(target=lambda: datapoints.append(iter(flow)) or next(datapoints[0]))
    thread.start()
    thread.join()
    assert [number for (number,) in datapoints[0]] == list(range(1, 1000))
    flow.close()


@pytest.mark.parametrize("after", ["", "raise ValueError", "sys.exit(3)", "del flow"])
def test_workers_end_with_the_script(tmp_path, after):
    process, worker = script_with_a_worker(tmp_path, after)
    with process:
        try:
            process.wait(30)
        finally:
            process.kill()
        wait_until_gone([worker])


def test_signals_to_all_processes_leave_it_to_the_parent_when_workers_end():
    def with_pid():
        while True:
            yield [os.getpid()]

    flow = run_generator(with_pid, num_prefetch=1)
    stream = iter(flow)
    (pid,) = next(stream)
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGUSR1)
    assert [next(stream) for _ in range(20)] == [[pid]] * 20
    close_dataflow(flow)


def test_a_script_needs_no_main_guard_and_its_own_classes_come_back(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            """
            from tpk.dataflow import DataFromList, MapData, MultiProcessRunner

            class Sample:
                def __init__(self, number):
                    self.number = number

            flow = MultiProcessRunner(MapData(DataFromList(range(4)), Sample), 2)
            samples = list(flow)
            assert all(type(sample) is Sample for sample in samples)
            print([sample.number for sample in samples])
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=280)
    assert done.stdout.strip() == "[0, 1, 2, 3]", done.stderr


def test_the_message_of_an_exception_that_cannot_be_pickled_is_told_even_if_notes_follow():
    class Awkward(Exception):
        def __init__(self, *, code):
            super().__init__(f"code {code}")

    def fail(datapoint):
        raise Awkward(code=3)

    with pytest.raises(InputError, match="Awkward: code 3"):  # and not the note that MapData adds
        list(MultiProcessRunner(MapData([[1]], fail), 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda flow: MultiProcessRunner(flow, 2),
        lambda flow: MultiProcessMapData(flow, 2, lambda datapoint: datapoint),
    ],
)
def test_an_iteration_ends_with_an_error_when_the_next_one_begins(make):
    flow = make(DataFromList([[number] for number in range(300)], shuffle=False))
    first = iter(flow)
    taken = [next(first)[0] for _ in range(3)]
    second = iter(flow)
    begun = [next(second)[0]]
    with pytest.raises(InputError, match=r"this iteration of .* is over.*make another"):
        list(first)
    begun += [datapoint[0] for datapoint in second]
    flow.close()
    assert taken == [0, 1, 2]
    assert begun == list(range(begun[0], 300))


def test_workers_end_at_once_though_a_forked_process_has_their_sockets():
    code = """
        import os, signal, subprocess
        from tpk.dataflow import MultiProcessRunner

        def kill(process):
            raise AssertionError("the worker did not end by itself")

        subprocess.Popen.kill = kill
        flow = MultiProcessRunner([[number] for number in range(4)], 1)
        assert len(list(flow)) == 4
        child = os.fork()
        if not child:
            signal.pause()
        flow.close()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=280)


def test_the_names_of_components_may_be_of_a_class_of_the_script(tmp_path):
    script = tmp_path / "script.py"
    code = """
        import enum
        import numpy as np
        from tpk.dataflow import MultiProcessRunner

        class Part(enum.Enum):
            IMAGE = 1

        flow = MultiProcessRunner([{Part.IMAGE: np.arange(3)}], 1)
        (datapoint,) = flow
        assert datapoint[Part.IMAGE].tolist() == [0, 1, 2], datapoint
        flow.close()
    """
    script.write_text(textwrap.dedent(code))
    subprocess.run([sys.executable, script], check=True, timeout=280)


def test_an_iteration_that_has_delivered_all_may_be_followed_by_that_of_another_consumer():
    flow = MultiProcessRunner(DataFromList([[number] for number in range(4)], shuffle=False), 2)
    training = iter(flow)
    taken = [next(training)[0] for _ in range(4)]  # a consumer that knows the length
    validation = list(flow)
    rest = list(training)
    flow.close()
    assert (taken, validation, rest) == ([0, 1, 2, 3], [[0], [1], [2], [3]], [])


def test_python_exits_at_once_while_threads_are_ahead():
    code = """
        from tpk.dataflow import DataFromList, FixedSizeData, MultiThreadRunner
        flow = FixedSizeData(MultiThreadRunner(lambda: DataFromList(range(10)), 2), 4)
        assert list(flow) == [0, 1, 2, 3]
    """
    # A runner waits a minute for each thread that does not end.
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=50)
