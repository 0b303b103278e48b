"""The processes of ``tpk launch`` from their start to the end of the last one."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence

from tpk.cli.launch.cluster import Cluster
from tpk.cli.launch.group import Launched, ProcessGroup
from tpk.cli.launch.output import Console

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
SETTLE_SECONDS = 5.0
"""How long the process that failed first may take to say so, if another one already complains of it."""


def run_processes(
    command: Sequence[str], cluster: Cluster, environment: Mapping[str, str], grace: float, console: Console
) -> int:
    """Start a process for each task, and wait until all have ended; leave none behind.

    Signals that this process receives go to the workers. When a process fails, the others get SIGTERM, and later
    SIGKILL. Parameter servers end when all workers have.

    Args:
        command: the program and its arguments, the same for all.
        cluster: which tasks there are.
        environment: the environment variables that all of them have.
        grace: the seconds between SIGTERM and SIGKILL.
        console: where their output goes.

    Returns:
        The exit status: that of the process that failed first, 128 and the number of the signal that killed it, or 0.
    """
    with _signals_received() as signals, contextlib.ExitStack() as cleanup:
        group = ProcessGroup(grace)
        cleanup.callback(group.kill)
        launched = [
            group.start(command, task, {**environment, **cluster.environment(task)}, console) for task in cluster.tasks
        ]
        watch = _Watch(launched, group, grace, console, signals)
        watch.until_the_end()
        # What processes have left behind them ends before the last of their output is read.
        group.kill()
        watch.read_the_rest()
        return watch.conclude()


class _Watch:
    """What happens to the processes, and what follows from it."""

    def __init__(
        self, launched: list[Launched], group: ProcessGroup, grace: float, console: Console, signals: socket.socket
    ) -> None:
        self._launched = launched
        self._workers = [each for each in launched if each.task.type == "worker"]
        self._group = group
        self._grace = grace
        self._console = console
        self._signals = signals
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ)
        for each in launched:
            for descriptor in each.streams:
                self._selector.register(descriptor, selectors.EVENT_READ, each)
        self._asked: list[int] = []
        self._failed: list[Launched] = []
        self._is_ending = False
        self._due: tuple[float, signal.Signals] | None = None

    def until_the_end(self) -> None:
        """Wait for the end of all."""
        while any(each.status is None for each in self._launched):
            timeout = None if self._due is None else max(self._due[0] - time.monotonic(), 0)
            for key, _ in self._selector.select(timeout):
                if key.data is None:
                    for signum in self._signals.recv(64):
                        self._receive(signum)
                else:
                    self._read(key.data, key.fd)
            self._note_ends()
            if self._due is not None and time.monotonic() >= self._due[0]:
                self._end_the_others(self._due[1])

    def read_the_rest(self) -> None:
        """Read what the processes, which are gone, have written."""
        for each in self._launched:
            self._read_all(each)
            for lines in each.streams.values():
                lines.end()

    def conclude(self) -> int:
        """Say which process has failed, and how; return the exit status."""
        if not self._failed:
            ends = [each.status for each in self._workers if each.status]
            return _exit_status(ends[0]) if ends else 0
        first = next((each for each in self._failed if not _blames_another(each)), self._failed[0])
        assert first.status is not None
        error = first.stderr.error()
        self._console.say(
            f"{first.task} {_described(first.status)}"
            + (". What it wrote to stderr last:" if error else ", and wrote nothing to stderr.")
        )
        self._console.write(self._console.stderr, error)
        return _exit_status(first.status)

    def _receive(self, signum: int) -> None:
        if signum in FORWARDED:
            self._asked.append(signum)
            # Parameter servers stay as long as workers need them.
            for each in self._workers:
                each.send(signum)
        elif signum == signal.SIGTSTP:
            self._group.send(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._group.send(signal.SIGCONT)

    def _note_ends(self) -> None:
        ended = [each for each in self._launched if each.status is None and each.process.poll() is not None]
        # Of two that have ended at once, the one that was killed did not do it on account of the other one.
        for each in sorted(ended, key=lambda each: each.process.returncode >= 0):
            each.status = each.process.returncode
            self._read_all(each)
            if each.status and not self._was_told_to(each):
                self._note_failure(each)
        if all(each.status is not None for each in self._workers) and self._due is None:
            self._end_the_others(signal.SIGTERM)

    def _was_told_to(self, each: Launched) -> bool:
        """Whether it ended by a signal that this process has sent it."""
        told = [*self._asked, *((signal.SIGTERM, signal.SIGKILL) if self._is_ending else ())]
        return any(each.status in (-signum, 128 + signum) for signum in told)

    def _note_failure(self, each: Launched) -> None:
        assert each.status is not None
        self._failed.append(each)
        if len(self._failed) == 1 and any(other.status is None for other in self._launched):
            self._console.say(f"{each.task} {_described(each.status)}; the others are ended.")
        if self._is_ending:
            return
        if self._asked:
            # They are ending already, and take a second signal for impatience.
            self._is_ending = True
            self._due = (time.monotonic() + self._grace, signal.SIGKILL)
        elif not _blames_another(each):
            self._end_the_others(signal.SIGTERM)
        elif self._due is None:
            self._due = (time.monotonic() + SETTLE_SECONDS, signal.SIGTERM)

    def _end_the_others(self, signum: signal.Signals) -> None:
        remaining = [each for each in self._launched if each.status is None]
        self._is_ending = True
        if signum == signal.SIGKILL:
            for each in remaining:
                self._console.say(f"{each.task} is killed: it has not ended within {self._grace:g} s.")
            self._group.kill()
            self._due = None
        else:
            for each in remaining:
                each.send(signum)
            self._due = (time.monotonic() + self._grace, signal.SIGKILL)

    def _read(self, each: Launched, descriptor: int) -> bool:
        """Read once; return whether there may be more."""
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return False
        except OSError:
            # So a pseudo-terminal ends.
            data = b""
        if data:
            each.streams[descriptor].feed(data)
            return True
        self._selector.unregister(descriptor)
        os.close(descriptor)
        each.streams.pop(descriptor).end()
        return False

    def _read_all(self, each: Launched) -> None:
        for descriptor in list(each.streams):
            while self._read(each, descriptor):
                pass


def _blames_another(each: Launched) -> bool:
    """Whether it says that it failed because another one did."""
    return b"PeerError:" in each.stderr.last_line


def _described(status: int) -> str:
    if status >= 0:
        return f"failed with exit status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"was killed by {name}" + (" (by the kernel if memory ran out)" if -status == signal.SIGKILL else "")


def _exit_status(status: int) -> int:
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _signals_received() -> Iterator[socket.socket]:
    """Give a socket that delivers the number of each signal that this process gets, one byte each."""
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    sender.setblocking(False)
    every = (*FORWARDED, signal.SIGCHLD, signal.SIGTSTP)
    # What the launcher was told to ignore, as by nohup, its processes ignore, too.
    taken = [signum for signum in every if signal.getsignal(signum) != signal.SIG_IGN]
    former = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    handlers = {signum: signal.signal(signum, lambda signum, frame: None) for signum in taken}
    try:
        with receiver, sender:
            yield receiver
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(former)
