"""Callbacks that stop a training: when a statistic stops improving, or when its time is up."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import tpk
from tpk.argument_checks import check_at_least, check_not_negative
from tpk.callbacks.statistics.followed import StatisticFollower
from tpk.errors import ConfigError, StopTraining
from tpk.plugin import Callback, hookimpl
from tpk.plugin.creation import also_spelled


@also_spelled({"monitor": "monitor_stat"})
class EarlyStopping(StatisticFollower):
    """Stops training when a statistic stops improving.

    The training ends cleanly after the epoch: all other callbacks finish it. If it is resumed later, it ends at once.
    If the statistic is unknown when the callback first needs it, a warning says so.

    Args:
        monitor_stat: the name of a statistic, such as ``"validation_error"``.
        patience: the number of values in a row that may be no better than the best one before.
        min_delta: by how much a value must be better than the best one to count; not negative.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger values are better.

    Raises:
        ConfigError: if `patience` is not positive, `min_delta` is negative, or `mode` is invalid.

    Example:
        ```python
        callbacks=[tpk.InferenceRunner(...), tpk.EarlyStopping("validation_error", patience=5)]
        ```
    """

    # All processes of a training end together.
    chief_only = False
    state_attributes = ("_best", "_waited", "_reason")

    def __init__(self, monitor_stat: str, patience: int, min_delta: float = 0.0, mode: str = "min") -> None:
        super().__init__(monitor_stat, mode)
        check_at_least(self, 1, patience=patience)
        check_not_negative(self, min_delta=min_delta)
        self.state_key = monitor_stat
        self._patience = patience
        self._min_delta = min_delta
        self._best: float | None = None
        self._waited = 0
        self._reason = ""

    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """End the training again if it had ended when the checkpoint was taken."""
        if self._reason:
            raise StopTraining(self._reason)

    @hookimpl(trylast=True)
    def trigger(self, trainer: tpk.Trainer) -> None:
        """Look at the statistic, after all callbacks that may report it."""
        value = self.take_new() if trainer.is_chief else None
        # Only the chief has all statistics.
        value = trainer.strategy.process_group.broadcast_object(f"the statistic {self.statistic!r}", value)
        if value is None:
            return
        if self._is_better(value):
            self._best, self._waited = value, 0
            return
        self._waited += 1
        if self._waited >= self._patience:
            best = "never a number" if self._best is None else f"{self._best:.5g} at best"
            self._reason = f"{self.statistic} was {best}, and not better in its last {self._waited} values"
            trainer.request_stop(self._reason)

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        return self._best is None or self.sign * value < self.sign * self._best - self._min_delta


class MaxTime(Callback):
    """Stops training after a given time.

    The training ends cleanly after the step in which the time is up, with a last checkpoint if there is a saver. The
    time counts across resumes, up to the checkpoint from which a run continues. So a training that it has ended ends
    at once when it is resumed, unless it is given more time. (If each job of a cluster has a limit, let the scheduler
    send SIGTERM or SIGUSR1 before it, which also ends a training cleanly.)

    In each step it only reads a clock. It works on all strategies: the chief decides, and all processes end in the same
    step, up to a second later.

    Args:
        duration: seconds, a `datetime.timedelta`, or ``"HH:MM:SS"`` or ``"DD:HH:MM:SS"``.
        clock: returns the time in seconds.

    Raises:
        ConfigError: if the duration is invalid or not positive.

    Example:
        ```python
        callbacks=[tpk.ModelSaver(), tpk.MaxTime("01:30:00")]
        ```
    """

    def __init__(self, duration: float | timedelta | str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = _in_seconds(duration)
        self._clock = clock
        # When it would have started if a resumed training had never stopped.
        self._started = 0.0
        self._end = math.inf

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Start the clock."""
        self._count_from(0.0)

    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """End the training if the time was up between two epochs."""
        self._check(trainer)

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """End the training if the time is up."""
        if self._clock() >= self._end:
            self._check(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return how long the training has run."""
        return {"elapsed": self._clock() - self._started}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue to count, and end the training if there is no time left."""
        self._count_from(state["elapsed"])
        self._check(self.trainer)

    def _count_from(self, elapsed: float) -> None:
        self._started = self._clock() - elapsed
        self._end = self._started + self._seconds

    def _check(self, trainer: tpk.Trainer) -> None:
        elapsed = self._clock() - self._started
        if elapsed >= self._seconds:
            self._end = math.inf  # Ask only once.
            trainer.request_stop(f"MaxTime: it has run for {timedelta(seconds=round(elapsed))}")


def _in_seconds(duration: Any) -> float:
    seconds = math.nan
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        found = re.fullmatch(r"(?:(\d+):)?(\d+):([0-5]?\d):([0-5]?\d)", duration.strip())
        if found:
            days, hours, minutes, rest = (int(part or 0) for part in found.groups())
            seconds = ((24 * days + hours) * 60 + minutes) * 60 + rest
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        seconds = float(duration)
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"MaxTime({duration!r}): expected a positive number of seconds, a datetime.timedelta, or a text such as "
            "'01:30:00' (HH:MM:SS) or '02:00:00:00' (DD:HH:MM:SS)."
        )
    return seconds
