"""A thread that notices hangs: data code that delivers nothing, a training without steps."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import attrs

logger = logging.getLogger(__name__)

_LOOKS_PER_TIMEOUT = 4


class DataCode(Protocol):
    """Data code shows its state in three attributes, so that watching it costs next to nothing.

    Attributes:
        owner: the name of its input source, for messages.
        busy_thread: the identifier of the thread that is running it, or 0.
    """

    owner: str
    busy_thread: int

    @property
    def index(self) -> int:
        """How many datapoints it has delivered."""


@attrs.define(eq=False)
class Watch:
    """Something that should make progress.

    Attributes:
        progress: returns a value that changes with each progress; None while it is idle.
        timeout: returns for how many seconds the current value may stay the same.
        shortest_timeout: the shortest of these times; the value is checked several times as often.
        report: is called with the seconds without progress, after the timeout, and each time that they have
            doubled.
    """

    progress: Callable[[], Any]
    timeout: Callable[[], float]
    shortest_timeout: float
    report: Callable[[float], None]
    _seen: Any = None
    _since: float = 0.0
    _report_after: float = 0.0

    def look(self, now: float) -> None:
        """Check once."""
        seen = self.progress()
        if seen is None or seen != self._seen:
            self._seen, self._since, self._report_after = seen, now, self.timeout()
        elif now - self._since >= self._report_after:
            self._report_after = 2 * (now - self._since)
            self.report(now - self._since)


class HangWatcher:
    """Checks what it watches from time to time. It has a thread only while it watches something.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watches: dict[int, Watch] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, code: DataCode, warn_after: float) -> None:
        """Watch data code, and log where its thread is when it hangs.

        Args:
            code: the data code; nothing changes if it is watched already.
            warn_after: seconds without a datapoint until the first warning.
        """

        def progress() -> tuple[int, int] | None:
            thread = code.busy_thread
            return (code.index, thread) if thread else None

        def warn(seconds: float) -> None:
            logger.warning(
                "%s: the data has not delivered datapoint %d within %.3g s; its thread is at\n%s",
                code.owner,
                code.index,
                seconds,
                stack_of(code.busy_thread),
            )

        self.add(code, Watch(progress, lambda: warn_after, warn_after, warn))

    def add(self, watched: Any, watch: Watch) -> None:
        """Watch `watched` by `watch`; nothing changes if it is watched already."""
        with self._changed:
            if id(watched) in self._watches:
                return
            self._watches[id(watched)] = watch
            watch.look(self._clock())
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tpk-HangWatcher", daemon=True)
                self._thread.start()

    def unwatch(self, watched: Any) -> None:
        """Stop watching: nothing more is reported. The thread ends with the last watch."""
        thread = None
        with self._changed:
            self._watches.pop(id(watched), None)
            if not self._watches:
                thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None:
            thread.join()

    def look(self) -> None:
        """Check everything that is watched once."""
        with self._changed:
            for watch in self._watches.values():
                watch.look(self._clock())

    def _run(self) -> None:
        current = threading.current_thread()
        while True:
            with self._changed:
                if self._thread is not current:
                    return
                shortest = min(watch.shortest_timeout for watch in self._watches.values())
                self._changed.wait(min(shortest / _LOOKS_PER_TIMEOUT, threading.TIMEOUT_MAX))
            self.look()


def stack_of(thread: int) -> str:
    """Return the stack of a thread, formatted as in a traceback; empty if it has ended.

    Args:
        thread: its identifier.
    """
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


def ends_in_time(thread: threading.Thread, timeout: float, complaint: str) -> bool:
    """Wait for the end of a thread and return whether it has ended; if not, log a warning with its stack.

    Args:
        thread: a thread that has been told to end.
        timeout: seconds to wait.
        complaint: the beginning of the warning: what the thread failed to do.
    """
    thread.join(timeout)
    if not thread.is_alive():
        return True
    logger.warning("%s within %g s; the thread is at\n%s", complaint, timeout, stack_of(thread.ident or 0))
    return False


hang_watcher = HangWatcher()
"""Watches the data of all input sources, and the trainings that have a `Watchdog`."""
