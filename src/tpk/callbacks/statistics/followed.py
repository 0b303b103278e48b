"""The base class of callbacks that follow a statistic."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tpk.argument_checks import check_mode
from tpk.errors import ConfigError
from tpk.plugin import Callback

logger = logging.getLogger(__name__)


class StatisticFollower(Callback):
    """Base of callbacks that follow a statistic; the log of the training's end shows its best value.

    Args:
        name: the name of the statistic.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger values are better.

    Raises:
        ConfigError: if `name` is not a string, or `mode` is invalid.

    Attributes:
        statistic: the name of the statistic.
        mode: as given.
        sign: 1 or -1; of two values times `sign`, the smaller one is better.
    """

    state_attributes: ClassVar[Sequence[str]] = ("_seen",)

    def __init__(self, name: str, mode: str) -> None:
        if not isinstance(name, str):
            raise ConfigError(f"expected the name of a statistic, such as 'validation_cost', not {name!r}")
        check_mode(self, mode)
        self.statistic, self.mode = name, mode
        self.sign = -1 if mode == "max" else 1
        self._seen = 0
        self._has_warned = False

    @property
    def best_checkpoint(self) -> Path | None:
        """The checkpoint of the best value, if the callback has saved one."""
        return None

    @property
    def values(self) -> list[float]:
        """All values of the statistic so far."""
        history = self.trainer.monitors.history
        return history[self.statistic].tolist() if self.statistic in history else []

    def warn_if_unknown(self) -> None:
        """Warn once if the statistic is still unknown, with the nearest names."""
        monitors = self.trainer.monitors
        if self.statistic not in monitors.names and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s follows the statistic %r, which has not been reported yet. %s",
                type(self).__name__,
                self.statistic,
                monitors.history.nearest(self.statistic),
            )

    def take_new(self) -> float | None:
        """Return the latest value of the statistic, or None if there has been none since the last call."""
        self.warn_if_unknown()
        values = self.values
        seen, self._seen = self._seen, len(values)
        return values[-1] if len(values) > seen else None
