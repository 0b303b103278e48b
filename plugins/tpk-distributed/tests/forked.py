"""A process of a test: forked by a zygote, watched, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from tpk_distributed.launch.tasks import Task

HERE = Path(__file__).parent
PATIENCE = 60.0
"""Seconds that the workers of a process may take to notice that it is gone, on a busy machine."""
SECONDS_TO_DUMP = 10.0
"""How long to wait for a process to write the stacks of its threads."""


@attrs.frozen
class Outcome:
    """How a process has ended.

    Attributes:
        status: as `subprocess.Popen.returncode` has it.
        returned: what its function returned; None if it did not.
        stdout: all that it wrote there.
        stderr: all that it wrote there.
        seconds: how long it took.
    """

    status: int
    returned: Any
    stdout: str = attrs.field(repr=False)
    stderr: str = attrs.field(repr=False)
    seconds: float


class Zygote:
    """Forks processes that have TensorFlow already.

    Args:
        modules: what it imports.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", str(HERE / "forker.py"), str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._answers = self._requests.makefile()
        # Imports count for no test's time limit.
        self._answer()

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Start a process, and return its id, which stays its own until it is reaped."""
        return self._ask(request, descriptors)

    def reap(self, pid: int) -> int:
        """Return how a process has ended; it waits for that."""
        return self._ask({"reap": pid}, [])

    def _ask(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        socket.send_fds(self._requests, [json.dumps(request).encode()], list(descriptors))
        return self._answer()

    def _answer(self) -> int:
        answer = self._answers.readline()
        assert answer, f"the zygote has ended, with exit status {self._process.wait()}"
        return int(json.loads(answer))

    def close(self) -> None:
        self._requests.shutdown(socket.SHUT_RDWR)
        self._answers.close()
        self._requests.close()
        self._process.wait()


class Process:
    """One process of a test.

    Args:
        task: what it is.
        begin: starts it: given the descriptors of stdin, stdout and stderr, returns its process id.
        zygote: its parent.
        give: the file into which it puts what it returns.
        deadline: when it has to be over, by `time.monotonic`.
    """

    def __init__(
        self, task: Task, begin: Callable[[Sequence[int]], int], zygote: Zygote, give: Path, deadline: float
    ) -> None:
        self.task = task
        self._begin = begin
        self._zygote = zygote
        self._give = give
        self._deadline = deadline
        self._news = threading.Condition()
        self._written = {"stdout": b"", "stderr": b""}
        self._ended = False
        self.pid = 0
        self.outcome: Outcome | None = None

    def start(self) -> None:
        """Start it."""
        stdin, self._stdin = os.pipe()
        (stdout, wstdout), (stderr, wstderr) = os.pipe(), os.pipe()
        self.pid = self._begin((stdin, wstdout, wstderr))
        self._started = time.monotonic()
        for each in (stdin, wstdout, wstderr):
            os.close(each)
        self._descriptor = os.pidfd_open(self.pid)
        watch = threading.Thread(target=self._watch, args=(os.dup(self._descriptor), stdout, stderr), daemon=True)
        watch.start()

    @property
    def stdout(self) -> str:
        """What it has written there so far."""
        return self._written["stdout"].decode(errors="replace")

    @property
    def stderr(self) -> str:
        """What it has written there so far."""
        return self._written["stderr"].decode(errors="replace")

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return bool(self.pid) and self.outcome is None and not _has_ended(self._descriptor, 0)

    def wait_for(self, text: str) -> None:
        """Wait until it has written `text`.

        Raises:
            AssertionError: it has ended, or the time is over.
        """
        with self._news:
            in_time = self._news.wait_for(
                lambda: text in self.stdout or text in self.stderr or self._ended, self._deadline - time.monotonic()
            )
        if not in_time:
            self.dump()
        assert text in self.stdout or text in self.stderr, f"{self.task} never wrote {text!r}:\n{self.report()}"

    def tell(self, line: str) -> None:
        """Write a line to its stdin."""
        os.write(self._stdin, f"{line}\n".encode())

    def send(self, signum: int) -> None:
        """Send a signal to it, though not to the processes that it has started."""
        signal.pidfd_send_signal(self._descriptor, signum)

    def wait(self) -> Outcome:
        """Wait for its end, and return how that was.

        Raises:
            AssertionError: it took longer than it may, and was killed.
        """
        if self.outcome is None:
            with self._news:
                in_time = self._news.wait_for(lambda: self._ended, self._deadline - time.monotonic())
            seconds = time.monotonic() - self._started
            if not in_time:
                self.dump()
                self.kill()
                raise AssertionError(f"{self.task} was killed after {seconds:.1f} s:\n{self.report()}")
            self._reap(seconds)
        assert self.outcome is not None
        return self.outcome

    def dump(self) -> None:
        """Abort it, which makes it write the stacks of its threads to stderr. A stopped process stays as it is."""
        self.send(signal.SIGABRT)
        with self._news:
            self._news.wait_for(lambda: self._ended, SECONDS_TO_DUMP)

    def kill(self) -> None:
        """End it, if it runs."""
        if self.pid and self.outcome is None:
            self.send(signal.SIGKILL)
            with self._news:
                self._news.wait_for(lambda: self._ended, PATIENCE)
            self._reap(time.monotonic() - self._started)

    def report(self) -> str:
        """Return the last of what it wrote, for the message of an error."""
        return f"--- stdout of {self.task}\n{self.stdout[-3000:]}\n--- stderr of {self.task}\n{self.stderr[-6000:]}"

    def left_behind(self) -> list[str]:
        """Return the processes of its session that stay, and kill them."""
        patience = time.monotonic() + PATIENCE
        found = []
        for pid in _session_of(self.pid) if self.pid else ():
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                if not _has_ended(descriptor, patience - time.monotonic()):
                    found.append(f"{self.task} left {pid} {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                os.close(descriptor)
        return found

    def _reap(self, seconds: float) -> None:
        status = self._zygote.reap(self.pid)
        os.close(self._descriptor)
        os.close(self._stdin)
        returned = pickle.loads(self._give.read_bytes()) if self._give.exists() else None
        self.outcome = Outcome(status, returned, self.stdout, self.stderr, seconds)

    def _watch(self, process: int, stdout: int, stderr: int) -> None:
        """Read what it writes until the end of it and of all processes that it has started."""
        with selectors.DefaultSelector() as selector:
            selector.register(process, selectors.EVENT_READ)
            selector.register(stdout, selectors.EVENT_READ, "stdout")
            selector.register(stderr, selectors.EVENT_READ, "stderr")
            while selector.get_map():
                ready = [key for key, _ in selector.select()]
                streams = [key for key in ready if key.data]
                for key in streams:
                    data = os.read(key.fd, 65536)
                    with self._news:
                        self._written[key.data] += data
                        self._news.notify_all()
                    if not data:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                # What it wrote before its end comes before its end.
                if ready and not streams:
                    selector.unregister(process)
                    os.close(process)
                    with self._news:
                        self._ended = True
                        self._news.notify_all()


def _has_ended(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], max(seconds, 0))[0])


def _session_of(leader: int) -> list[int]:
    """Return the processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # Behind the name of the program, which may hold anything: state, parent, group, session.
                if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                    found.append(int(entry.name))
    return found
