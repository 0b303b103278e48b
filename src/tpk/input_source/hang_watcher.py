"""Says where data code is stuck, when it does not deliver."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Protocol

import attrs

from tpk.errors import ConfigError

logger = logging.getLogger(__name__)

_GROWTH = 2.0
_LOOKS_PER_WARNING = 4


class Watched(Protocol):
    """What can be watched: it says what it does by three attributes, so that it costs next to nothing.

    Attributes:
        owner: its name, for the message.
        index: how many datapoints it has had from the data code.
        busy_thread: the identifier of the thread that is in the data code, or 0.
    """

    owner: str
    index: int
    busy_thread: int


@attrs.define(eq=False)
class _Watch:
    """What is known of one of those watched."""

    watched: Watched
    warn_after: float
    seen: tuple[int, int] = (0, 0)
    since: float = 0.0
    warn_at: float = 0.0


class HangWatcher:
    """Looks now and then whether data code delivers, and logs the stack of its thread if it does not.

    The first warning comes after the time that was asked for, each further one after twice as long. There is a
    thread only while something is watched.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watches: list[_Watch] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, watched: Watched, warn_after: float) -> None:
        """Begin to watch; what is watched already stays so.

        Args:
            watched: what is watched.
            warn_after: seconds in the data code, for one datapoint, before the first warning.
        """
        with self._changed:
            if any(watch.watched is watched for watch in self._watches):
                return
            self._watches.append(_Watch(watched, warn_after))
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tpk-HangWatcher", daemon=True)
                self._thread.start()

    def unwatch(self, watched: Watched) -> None:
        """Stop to watch; with the last one the thread ends."""
        thread = None
        with self._changed:
            self._watches = [watch for watch in self._watches if watch.watched is not watched]
            if not self._watches:
                thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None:
            thread.join()

    def look(self) -> None:
        """Look once at all that is watched."""
        now = self._clock()
        with self._changed:
            watches = list(self._watches)
        for watch in watches:
            seen = (watch.watched.index, watch.watched.busy_thread)
            if seen != watch.seen or not seen[1]:
                watch.seen, watch.since, watch.warn_at = seen, now, now + watch.warn_after
            elif now >= watch.warn_at:
                watch.warn_at = now + (now - watch.since) * (_GROWTH - 1)
                _warn(watch.watched, now - watch.since, seen[1])

    def _run(self) -> None:
        current = threading.current_thread()
        while True:
            with self._changed:
                if self._thread is not current:
                    return
                self._changed.wait(min(watch.warn_after for watch in self._watches) / _LOOKS_PER_WARNING)
            self.look()


def stack_of(thread: int) -> str:
    """Return the stack of a thread, as a traceback shows it; empty if it has ended.

    Args:
        thread: its identifier.
    """
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


def ends_in_time(thread: threading.Thread, patience: float, complaint: str) -> bool:
    """Wait for the end of a thread, and return whether it has come; if not, warn with the stack of the thread.

    Args:
        thread: a thread that has been told to end.
        patience: seconds to wait.
        complaint: what the warning says that it has not done.
    """
    thread.join(patience)
    if not thread.is_alive():
        return True
    logger.warning("%s within %g s; the thread is at\n%s", complaint, patience, stack_of(thread.ident or 0))
    return False


def check_warn_after(warn_after: float, owner: str) -> float:
    """Return the time before a warning, checked.

    Raises:
        ConfigError: it is not positive.
    """
    if not warn_after > 0:
        raise ConfigError(f"{owner}: warn_after must be a positive number of seconds, not {warn_after!r}")
    return warn_after


def _warn(watched: Watched, seconds: float, thread: int) -> None:
    logger.warning(
        "%s: the data has not delivered datapoint %d within %.3g s; its thread is at\n%s",
        watched.owner,
        watched.index,
        seconds,
        stack_of(thread),
    )


hang_watcher = HangWatcher()
"""Watches the data of all input sources."""
