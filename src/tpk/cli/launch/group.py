"""The process group of all that ``tpk launch`` starts, which does not outlive it, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial

import attrs

from tpk.cli.launch import guard
from tpk.cli.launch.cluster import Task
from tpk.cli.launch.output import Console, TaggedLines, terminal_like


@attrs.define(eq=False)
class Launched:
    """A process.

    Attributes:
        task: what it is.
        process: how it is reached.
        stdout: its lines.
        stderr: its lines.
        streams: the descriptors of both, as long as they are read.
        status: how it has ended, as `subprocess.Popen.returncode` has it; None if it has not.
    """

    task: Task
    process: subprocess.Popen[bytes]
    stdout: TaggedLines
    stderr: TaggedLines
    streams: dict[int, TaggedLines]
    status: int | None = None

    def send(self, signum: int) -> None:
        """Send it a signal if it is still there, though not to processes that it has started."""
        if self.status is None:
            self.process.send_signal(signum)


class ProcessGroup:
    """Starts processes in a group of their own, so that a terminal's Ctrl-C reaches them by the launcher only.

    Args:
        grace: the seconds that the guard, should it come to that, leaves them between SIGTERM and SIGKILL.
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

    def start(self, command: Sequence[str], task: Task, environment: Mapping[str, str], console: Console) -> Launched:
        """Start a process.

        Args:
            command: the program and its arguments.
            task: what it is.
            environment: all of its environment variables.
            console: where its output goes.
        """
        draws_bar = task == Task("worker", 0) and console.has_terminal
        ours, theirs = os.pipe()
        if draws_bar:
            ours_of_errors, theirs_of_errors = terminal_like(console.stderr, narrower=len(task.tag) + 3)
        else:
            ours_of_errors, theirs_of_errors = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs_of_errors,
                env=environment,
                pass_fds=[self._launched],
                preexec_fn=partial(os.setpgid, 0, self._guard.pid),
            )
        finally:
            os.close(theirs)
            os.close(theirs_of_errors)
        os.set_blocking(ours, False)
        os.set_blocking(ours_of_errors, False)
        stdout = TaggedLines(task.tag, partial(console.write, console.stdout), None)
        stderr = TaggedLines(task.tag, partial(console.write, console.stderr), console.show_bar if draws_bar else None)
        return Launched(task, process, stdout, stderr, {ours: stdout, ours_of_errors: stderr})

    def send(self, signum: int) -> None:
        """Send a signal to all processes, and to those that they have started."""
        os.killpg(self._guard.pid, signum)

    def kill(self) -> None:
        """End all of them at once; no more can be started."""
        # The number of the group is not given to another one before its leader is waited for.
        if self._guard.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGKILL)
            self._guard.wait()
            os.close(self._launcher)
            os.close(self._launched)
