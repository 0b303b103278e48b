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
from tpk_distributed.launch.tasks import Task


@attrs.define(eq=False)
class Launched:
    """A launched process.

    Attributes:
        task: its task in the cluster.
        process: the process.
        stderr: the lines that it writes to stderr.
        streams: its streams that are still open, with their lines.
        status: its exit status, as `subprocess.Popen.returncode` has it; None while it runs.
    """

    task: Task
    process: subprocess.Popen[bytes]
    stderr: TaggedLines
    streams: dict[IO[bytes], TaggedLines]
    status: int | None = None

    def send(self, signum: int) -> None:
        """Send a signal to the process if it runs, but not to its children."""
        if self.status is None:
            self.process.send_signal(signum)

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

    def start(self, command: Sequence[str], task: Task, environment: Mapping[str, str]) -> Launched:
        """Start a process.

        Args:
            command: the program and its arguments.
            task: its task in the cluster.
            environment: all of its environment variables.
        """
        process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
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
