"""Timers."""

from __future__ import annotations

import atexit
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.stats import StatCounter

__all__ = ["IterSpeedCounter", "Timer", "timed_operation"]

_totals: dict[str, StatCounter] = defaultdict(StatCounter)


@contextmanager
def timed_operation(msg: str, log_start: bool = False) -> Iterator[None]:
    """Log how long the code in the context takes.

    Args:
        msg: the name in the log.
        log_start: whether to log the start, too.
    """
    if log_start:
        logger.info("Start %s ...", msg)
    start = perf_counter()
    yield
    logger.info("%s finished, time:%.4f sec.", msg[:1].upper() + msg[1:], perf_counter() - start)


@contextmanager
def total_timer(msg: str) -> Iterator[None]:
    """Add the time that the code in the context takes to the total of `msg`, which is logged at exit."""
    start = perf_counter()
    yield
    if not _totals:
        atexit.register(print_total_timer)
    _totals[msg].feed(perf_counter() - start)


def print_total_timer() -> None:
    """Log the totals of every `total_timer`."""
    for name, times in _totals.items():
        logger.info("%s: %.2f sec, %d times, %.3g sec/time", name, times.sum, times.count, times.average)


class IterSpeedCounter:
    """Log the speed of an iteration after every `print_every` calls.

    Args:
        print_every: the number of calls between two log messages.
        name: the name in the log.
    """

    def __init__(self, print_every: int, name: str | None = None) -> None:
        self.print_every = int(print_every)
        self.name = name if name else "IterSpeed"
        self.reset()

    def reset(self) -> None:
        """Restart the count."""
        self.start = perf_counter()
        self.cnt = 0

    def __call__(self) -> None:
        """Count a call."""
        self.cnt += 1
        if self.cnt % self.print_every == 0:
            logger.info("%s: %.2f iterations/s", self.name, self.cnt / (perf_counter() - self.start))


class Timer:
    """A stopwatch, running from its creation.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Restart from 0."""
        self._start = self._clock()
        self._paused_at: float | None = None

    def pause(self) -> None:
        """Pause the timer."""
        if self._paused_at is not None:
            raise CheckError("the Timer is already paused")
        self._paused_at = self._clock()

    def is_paused(self) -> bool:
        """Whether the timer is paused."""
        return self._paused_at is not None

    def resume(self) -> None:
        """Resume the timer."""
        if self._paused_at is None:
            raise CheckError("the Timer is not paused")
        self._start += self._clock() - self._paused_at
        self._paused_at = None

    def seconds(self) -> float:
        """Return the elapsed seconds, without pauses."""
        return (self._clock() if self._paused_at is None else self._paused_at) - self._start
