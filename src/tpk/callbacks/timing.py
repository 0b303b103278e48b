"""How long a training will still take."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from tpk.errors import ConfigError
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class EstimatedTimeLeft(Callback):
    """Logs at the end of each epoch how much longer the training will take, from how long the last epochs
    took.

    Args:
        last_k_epochs: how many of the last epochs it looks at.
        median: take the median of their times, which one slow epoch does not disturb, and not the mean.
        clock: returns the time in seconds.

    Attributes:
        seconds_left: the estimated time until the training ends; None before the end of the first epoch.
        seconds_total: that and the time since the training began; None before the end of the first epoch.

    Raises:
        ConfigError: if `last_k_epochs` is not positive.
    """

    def __init__(
        self, last_k_epochs: int = 5, median: bool = True, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if last_k_epochs < 1:
            raise ConfigError(f"last_k_epochs must be at least 1, but is {last_k_epochs!r}.")
        self._average = np.median if median else np.mean
        self._clock = clock
        self._epoch_seconds: deque[float] = deque(maxlen=last_k_epochs)
        self._started = 0.0
        self._epoch_started = 0.0
        self.seconds_left: float | None = None
        self.seconds_total: float | None = None

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Start the clock."""
        self._started = self._epoch_started = self._clock()

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Estimate and log the time that is left."""
        now = self._clock()
        self._epoch_seconds.append(now - self._epoch_started)
        self._epoch_started = now
        if trainer.max_epoch == sys.maxsize:  # Without an end, there is nothing to estimate.
            return
        epochs_left = max(trainer.max_epoch - self.epoch_num, 0)
        self.seconds_left = epochs_left * float(self._average(self._epoch_seconds))
        self.seconds_total = now - self._started + self.seconds_left
        if epochs_left:
            logger.info(
                "estimated time left: %s of %s",
                _in_whole_seconds(self.seconds_left),
                _in_whole_seconds(self.seconds_total),
            )

    def state_dict(self) -> dict[str, Any]:
        """Return how long the last epochs took, and how long the training and the epoch under way have taken."""
        now = self._clock()
        return {
            "epoch_seconds": list(self._epoch_seconds),
            "training": now - self._started,
            "epoch": now - self._epoch_started,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned; the time between two attempts does not count."""
        now = self._clock()
        self._epoch_seconds.extend(state["epoch_seconds"])
        self._started = now - state["training"]
        self._epoch_started = now - state["epoch"]


def _in_whole_seconds(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))
