"""Early stopping: the end of a training that does not get better."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any

from tpk.callbacks.statistics.followed import Statistic, StatisticFollower
from tpk.checks import check_at_least, check_flags, check_not_negative
from tpk.errors import ConfigError, StopTraining
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


class EarlyStopping(StatisticFollower, Callback):
    """Ends the training when a statistic has not become better for some time.

    The training ends in good order once the epoch is over: all other callbacks do their part of it. A training that
    it has ended is over for good: resumed, it ends at once. A statistic that nobody reports is an error after the first
    epoch, see `tpk.callbacks.statistics.followed.StatisticCheck`.

    Args:
        monitor_stat: a statistic that the monitors know, such as ``"validation_error"``.
        patience: how many of its values in a row may be no better than the best before them.
        min_delta: by how much a value must be better than the best to count; not negative.
        reverse: the statistic becomes better by growing.

    Raises:
        ConfigError: if `patience` is not positive or `min_delta` negative.
        UnknownScalarError: in the training, if nobody reports the statistic.

    Example:
        ```python
        callbacks=[tpk.InferenceRunner(...), tpk.EarlyStopping("validation_error", patience=5)]
        ```
    """

    # All processes of a training end together.
    chief_only = False

    def __init__(self, monitor_stat: str, patience: int, min_delta: float = 0.0, reverse: bool = False) -> None:
        check_at_least(self, 1, patience=patience)
        check_flags(self, reverse=reverse)
        check_not_negative(self, min_delta=min_delta)
        self.statistic = Statistic(monitor_stat, reverse)
        self._patience = patience
        self._min_delta = min_delta
        self._sign = -1.0 if reverse else 1.0
        self._best: float | None = None
        self._waited = 0
        self._reason = ""

    @property
    def state_key(self) -> str:
        """What tells it from others of its kind when a training is resumed."""
        return self.statistic.name

    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """End the training again, if it had been ended when the checkpoint was taken."""
        if self._reason:
            raise StopTraining(self._reason)

    @hookimpl(trylast=True)
    def trigger(self, trainer: TrainerProtocol) -> None:
        """Look at the statistic, after all that may write it."""
        value = self.statistic.take_new(trainer.monitors) if trainer.is_chief else None
        # Only the chief has all statistics, but all processes have to end together.
        value = trainer.strategy.process_group.broadcast_object(f"the statistic {self.statistic.name!r}", value)
        if value is None:
            return
        if self._is_better(value):
            self._best, self._waited = value, 0
            return
        self._waited += 1
        if self._waited >= self._patience:
            best = "never a number" if self._best is None else f"{self._best:.5g} at best"
            self._reason = f"{self.statistic.name} was {best}, and not better in its last {self._waited} values"
            trainer.request_stop(self._reason)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, and how long ago it was."""
        return {
            "best": self._best,
            "waited": self._waited,
            "reason": self._reason,
            "statistic": self.statistic.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._best, self._waited, self._reason = state["best"], state["waited"], state["reason"]
        self.statistic.load_state_dict(state["statistic"])

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        return self._best is None or self._sign * value < self._sign * self._best - self._min_delta


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
