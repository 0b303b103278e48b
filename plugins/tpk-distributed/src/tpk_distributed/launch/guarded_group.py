"""The process group of everything that ``tpk launch`` starts. It does not outlive the launcher, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO

import attrs

from tpk_distributed.launch import guard
from tpk_distributed.launch.tagged_lines import TaggedLines
from tpk_distributed.launch.tasks import Host, Task


@attrs.frozen
class Start:
    """How to start a process.

    Attributes:
        task: its task in the cluster, or the host of a launcher.
        command: the program and its arguments.
        environment: all of its environment variables.
    """

    task: Task | Host
    command: Sequence[str]
    environment: Mapping[str, str]


@attrs.define(eq=False)
class Launched:
    """A launched process.

    Attributes:
        task: its task in the cluster, or the host of a launcher.
        process: the process.
        stderr: the lines that it writes to stderr.
        streams: its streams that are still open, with their lines.
        status: its exit status, as `subprocess.Popen.returncode` has it; None while it runs.
    """

    task: Task | Host
    process: subprocess.Popen[bytes]
    stderr: TaggedLines
    streams: dict[IO[bytes], TaggedLines]
    status: int | None = None

    def send(self, signum: int) -> None:
        """Send a signal to the process if it runs, but not to its children."""
        if self.status is not None:
            return
        if self.process.stdin is None:
            self.process.send_signal(signum)
        else:  # A launcher at another host, which ssh does not pass signals on to.
            with contextlib.suppress(OSError):
                self.process.stdin.write(bytes([signum]))

    def read(self, stream: IO[bytes]) -> bool:
        """Read from a stream once, and close it when it is exhausted; return whether there may be more."""
        data = stream.read(65536)
        if data:
            self.streams[stream].feed(data)
        elif data is not None:  # None: nothing to read at the moment
            self.streams.pop(stream).end()
            stream.close()
        return bool(data)


class GuardedGroup:
    """Starts processes in their own group, so that a terminal's Ctrl-C reaches them through the launcher only.

    Args:
        grace: the seconds between SIGTERM and SIGKILL, if the guard has to end them.
    """

    def __init__(self, grace: float) -> None:
        launcher, self._launcher = os.pipe()
        launched, self._launched = os.pipe()
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(launcher), str(launched), str(grace)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[launcher, launched],
                preexec_fn=os.setpgrp,
            )
        finally:
            os.close(launcher)
            os.close(launched)

    def start(self, start: Start) -> Launched:
        """Start a process."""
        task = start.task
        process = subprocess.Popen(
            start.command,
            bufsize=0,
            stdin=subprocess.PIPE if isinstance(task, Host) else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=start.environment,
            pass_fds=[self._launched],
            preexec_fn=partial(os.setpgid, 0, self._guard.pid),
        )
        assert process.stdout is not None and process.stderr is not None
        for stream in (process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
        stderr = TaggedLines(task.tag, 2)
        return Launched(task, process, stderr, {process.stdout: TaggedLines(task.tag, 1), process.stderr: stderr})

    def kill(self) -> None:
        """Kill all of the processes and their children at once; no more can be started."""
        # The number of the group is not reused before its leader is waited for.
        if self._guard.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
            os.close(self._launcher)
            os.close(self._launched)
