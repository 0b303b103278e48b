"""Limit of time: the end of a training that has run for long enough."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

_CLOCK = re.compile(r"(?:(\d+):)?(\d+):([0-5]?\d):([0-5]?\d)")


class MaxTime(Callback):
    """Ends the training when it has run for some time, after the step in which that is over.

    It ends in good order: all other callbacks do their part of that step, and the last checkpoint is saved where there
    is a saver. A training that is resumed goes on counting: the time up to its checkpoint counts, and what was killed
    after it does not. So a training that it has ended ends at once when it is resumed, unless it is given more time.
    (Where each job of a cluster has a limit, let its scheduler send SIGTERM or SIGUSR1 before that, which ends a
    training in good order, too.)

    All that it does in a step is to look at a clock, after it. It works on all strategies: the chief looks, and all
    processes end in the same step, up to a second later.

    Args:
        duration: seconds, a `datetime.timedelta`, or ``"HH:MM:SS"`` or ``"DD:HH:MM:SS"``.
        clock: returns the time in seconds.

    Raises:
        ConfigError: if the duration is none of these, or not positive.

    Example:
        ```python
        callbacks=[tpk.ModelSaver(), tpk.MaxTime("01:30:00")]
        ```
    """

    def __init__(self, duration: float | timedelta | str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = _seconds(duration)
        self._clock = clock
        # What the runs before this one have taken, and when that is counted from.
        self._before = 0.0
        self._started: float | None = None
        self._end = math.inf

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Begin to count."""
        self._count_from(self._before)

    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """End the training if what came between two epochs has taken the rest of the time."""
        self._look(trainer)

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """End the training if it is time."""
        if self._clock() >= self._end:
            self._look(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return for how long the training has run."""
        return {"elapsed": self._elapsed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting, and end the training if there is no time left."""
        self._before = float(state["elapsed"])
        if self._started is not None:
            self._count_from(self._before)
            self._look(self.trainer)

    @property
    def _elapsed(self) -> float:
        return self._before if self._started is None else self._before + self._clock() - self._started

    def _count_from(self, elapsed: float) -> None:
        self._started = self._clock()
        self._end = self._started + self._seconds - elapsed

    def _look(self, trainer: TrainerProtocol) -> None:
        elapsed = self._elapsed
        if elapsed >= self._seconds:
            self._end = math.inf  # It asks once.
            trainer.request_stop(f"MaxTime: it has run for {timedelta(seconds=round(elapsed))}")


def _seconds(duration: Any) -> float:
    seconds = -1.0
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        found = _CLOCK.fullmatch(duration.strip())
        if found:
            days, hours, minutes, rest = (int(part or 0) for part in found.groups())
            seconds = timedelta(days=days, hours=hours, minutes=minutes, seconds=rest).total_seconds()
    elif not isinstance(duration, bool) and isinstance(duration, Real):
        seconds = float(duration)
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"MaxTime({duration!r}): expected a positive number of seconds, a datetime.timedelta, or a text such as "
            "'01:30:00' (HH:MM:SS) or '02:00:00:00' (DD:HH:MM:SS)."
        )
    return seconds
