"""Early stopping: the end of a training that does not get better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpk.callbacks.statistics.statistic import Statistic, StatisticFollower
from tpk.checks import check_at_least, check_flags, check_not_negative
from tpk.errors import StopTraining
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


class EarlyStopping(StatisticFollower, Callback):
    """Ends the training when a statistic has not become better for some time.

    The training ends in good order once the epoch is over: all other callbacks do their part of it. A training that
    it has ended is over for good: resumed, it ends at once. A statistic that nobody reports is an error after the first
    epoch, see `tpk.callbacks.statistics.statistic.StatisticCheck`.

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
