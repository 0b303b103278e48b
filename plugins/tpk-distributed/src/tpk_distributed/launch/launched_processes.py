"""The processes of ``tpk launch``, from their start to the end of the last one."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO

from tpk_distributed.cluster import WORKER
from tpk_distributed.launch.guarded_group import GuardedGroup, Launched, Start
from tpk_distributed.launch.launchers import Link
from tpk_distributed.launch.tagged_lines import say, write
from tpk_distributed.launch.tasks import Host

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
SETTLE_SECONDS = 5.0
"""How long to wait for the process that failed first, if another one already reports that it lost a peer."""


def run(starts: Sequence[Start], grace: float, links: Sequence[Link] = (), is_attached: bool = False) -> int:
    """Start processes, and wait until all have ended; leave none behind.

    Signals that this process receives go to the workers. When a process fails, the others get SIGTERM, and later
    SIGKILL. Parameter servers are ended when all workers have ended.

    Args:
        starts: how to start them: the processes of this host, or a launcher at each host.
        grace: the seconds between SIGTERM and SIGKILL.
        links: to the launchers that start other processes of the same training.
        is_attached: whether signals also come by stdin, a byte each, from a launcher that uses ssh. Its end is SIGTERM.

    Returns:
        The exit status of the process that failed first, or 128 plus the number of the signal that killed it; 0 if none
        failed; if that was at another host, what its launcher tells.
    """
    with _signals_received() as signals, contextlib.ExitStack() as cleanup:
        group = GuardedGroup(grace)
        cleanup.callback(group.kill)
        launched = [group.start(each) for each in starts]
        watch = _Watch(launched, group, grace, signals, links, is_attached)
        watch.wait()
        # Their children must end before the last of the output can be read.
        group.kill()
        for each in launched:
            watch.read_all(each)
            for lines in each.streams.values():
                lines.end()
        return watch.conclude()


class _Watch:
    """Reads the output of the processes, forwards signals, and ends the others when one fails."""

    def __init__(
        self,
        launched: list[Launched],
        group: GuardedGroup,
        grace: float,
        signals: socket.socket,
        links: Sequence[Link],
        is_attached: bool,
    ) -> None:
        self._launched = launched
        self._workers = [each for each in launched if each.task.job == WORKER]
        self._group = group
        self._grace = grace
        self._signals = signals
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ, self._take_signals)
        if is_attached:
            self._selector.register(0, selectors.EVENT_READ, self._take_signals_of_launcher)
        self._links = list(links)
        for link in links:
            self._selector.register(link.stream, selectors.EVENT_READ, partial(self._take_end_of, link))
        for each in launched:
            for stream in each.streams:
                self._selector.register(stream, selectors.EVENT_READ, partial(self._read, each, stream))
        self._forwarded: list[int] = []
        self._failed: list[Launched] = []
        self._status_elsewhere = 0
        self._is_ending = False
        self._due: tuple[float, signal.Signals] | None = None

    def wait(self) -> None:
        """Wait until all processes have ended, and tell the other launchers how."""
        while any(each.status is None for each in self._launched):
            timeout = None if self._due is None else max(self._due[0] - time.monotonic(), 0)
            for key, _ in self._selector.select(timeout):
                key.data()
            self._note_ends()
            if self._due is not None and time.monotonic() >= self._due[0]:
                self._end_the_others(self._due[1])
        if self._failed:
            self._tell_other_launchers(self._failed[0])
        for link in self._links:
            link.tell(0)

    def read_all(self, each: Launched) -> None:
        """Read everything that a process has written so far."""
        for stream in list(each.streams):
            while self._read(each, stream):
                pass

    def conclude(self) -> int:
        """Report which process failed first, and how; return the exit status."""
        if self._status_elsewhere:
            return self._status_elsewhere
        if not self._failed:
            ends = [each.status for each in self._workers if each.status]
            return _exit_status(ends[0]) if ends else 0
        first = next((each for each in self._failed if not _blames_another(each)), self._failed[0])
        assert first.status is not None
        if isinstance(first.task, Host):  # Its launcher has said what there is to say.
            return _exit_status(first.status)
        error = first.stderr.error()
        ending = ". The end of its stderr:" if error else ", and wrote nothing to stderr."
        say(f"{first.task} {_described(first)}{ending}")
        write(2, error)
        return _exit_status(first.status)

    def _read(self, each: Launched, stream: IO[bytes]) -> bool:
        more = each.read(stream)
        if stream not in each.streams:
            self._selector.unregister(stream)
        return more

    def _take_signals(self) -> None:
        self._forward(self._signals.recv(64))

    def _take_signals_of_launcher(self) -> None:
        signums = os.read(0, 64)
        self._forward(signums)
        if not signums:  # It is gone.
            self._selector.unregister(0)
            self._end_the_others(signal.SIGTERM)

    def _take_end_of(self, link: Link) -> None:
        self._selector.unregister(link.stream)
        self._links.remove(link)
        status, failure = link.end()
        if status and not self._status_elsewhere and not self._failed:
            self._status_elsewhere = status
            say(f"{failure}; the processes of this host are ended.")
            for each in self._links:
                each.tell(status, failure)
            self._end_the_others(signal.SIGTERM)

    def _tell_other_launchers(self, failed: Launched) -> None:
        assert failed.status is not None
        for link in self._links:
            link.tell(_exit_status(failed.status), f"{failed.task} {_described(failed)}")

    def _forward(self, signums: bytes) -> None:
        for signum in signums:
            if signum in FORWARDED:
                self._forwarded.append(signum)
                # Parameter servers stay as long as workers need them.
                for each in self._workers:
                    each.send(signum)

    def _note_ends(self) -> None:
        ended = [each for each in self._launched if each.status is None and each.process.poll() is not None]
        # Of two that have ended at the same time, one that was killed is the cause.
        for each in sorted(ended, key=lambda each: each.process.returncode >= 0):
            each.status = each.process.returncode
            self.read_all(each)
            if each.status and not self._was_told_to_end(each):
                self._note_failure(each)
        has_ended = all(each.status is not None for each in self._workers) and not self._links
        if has_ended and self._due is None:
            self._end_the_others(signal.SIGTERM)

    def _was_told_to_end(self, each: Launched) -> bool:
        """Whether it ended by a signal that this process has sent."""
        sent = [*self._forwarded, *((signal.SIGTERM, signal.SIGKILL) if self._is_ending else ())]
        return any(each.status in (-signum, 128 + signum) for signum in sent)

    def _note_failure(self, each: Launched) -> None:
        assert each.status is not None
        self._failed.append(each)
        if len(self._failed) == 1 and any(other.status is None for other in self._launched):
            say(f"{each.task} {_described(each)}; the others are ended.")
        if self._is_ending:
            return
        if self._forwarded:
            # They are ending already, and would take a second signal for impatience.
            self._is_ending = True
            self._due = (time.monotonic() + self._grace, signal.SIGKILL)
        elif not _blames_another(each):
            self._tell_other_launchers(each)
            self._end_the_others(signal.SIGTERM)
        elif self._due is None:
            self._due = (time.monotonic() + SETTLE_SECONDS, signal.SIGTERM)

    def _end_the_others(self, signum: signal.Signals) -> None:
        remaining = [each for each in self._launched if each.status is None]
        self._is_ending = True
        if signum == signal.SIGKILL:
            for each in remaining:
                say(f"{each.task} is killed: it did not end within {self._grace:g} s.")
            self._group.kill()
            self._due = None
        else:
            for each in remaining:
                each.send(signum)
            self._due = (time.monotonic() + self._grace, signal.SIGKILL)


def _blames_another(each: Launched) -> bool:
    """Whether it reports that it failed because another process failed."""
    return b"PeerError:" in each.stderr.last_line


def _described(each: Launched) -> str:
    status = each.status
    assert status is not None
    if status >= 0:
        return f"failed with exit status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"was killed by {name}" + (" (by the kernel if memory ran out)" if -status == signal.SIGKILL else "")


def _exit_status(status: int) -> int:
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _signals_received() -> Iterator[socket.socket]:
    """Yield a socket that delivers the number of each signal that this process receives, one byte each."""
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    sender.setblocking(False)
    # Processes inherit which signals the launcher ignores, as with nohup.
    handled = [each for each in (*FORWARDED, signal.SIGCHLD) if signal.getsignal(each) != signal.SIG_IGN]
    former = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    handlers = {signum: signal.signal(signum, lambda signum, frame: None) for signum in handled}
    try:
        with receiver, sender:
            yield receiver
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(former)
