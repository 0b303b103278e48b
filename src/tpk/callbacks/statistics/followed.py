"""Statistics that callbacks follow."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tpk
from tpk.callbacks.triggers import innermost
from tpk.errors import ConfigError
from tpk.plugin import Callback

logger = logging.getLogger(__name__)


class Statistic:
    """A scalar that a callback follows; each value is used once.

    Args:
        name: its name.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger values are better.

    Raises:
        ConfigError: if `name` is not a string.

    Attributes:
        sign: 1 or -1; of two values times `sign`, the smaller one is better.
    """

    def __init__(self, name: str, mode: str = "min") -> None:
        if not isinstance(name, str):
            raise ConfigError(f"expected the name of a statistic, such as 'validation_cost', not {name!r}")
        self.name = name
        self.mode = mode
        self.sign = -1 if mode == "max" else 1
        self._seen = 0
        self._has_warned = False

    def warn_if_unknown(self, monitors: tpk.Monitors) -> None:
        """Warn once if the statistic is still unknown, with the nearest names."""
        if self.name not in monitors.names and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a callback follows the statistic %r, which has not been reported yet. %s",
                self.name,
                monitors.history.nearest(self.name),
            )

    def take_new(self, monitors: tpk.Monitors) -> float | None:
        """Return the latest value, or None if there has been none since the last call."""
        if self.name not in monitors.names:
            self.warn_if_unknown(monitors)
            return None
        history = monitors.get_history(self.name)
        seen, self._seen = self._seen, len(history)
        return history[-1][1] if len(history) > seen else None

    def state_dict(self) -> dict[str, Any]:
        """Return how many values have been used."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._seen = state["seen"]


class StatisticFollower(Callback):
    """Base of callbacks that follow a statistic; the log of the training's end shows its best value.

    Attributes:
        statistic: the statistic; set by the constructor.
    """

    statistic: Statistic

    @property
    def best_checkpoint(self) -> Path | None:
        """The checkpoint of the best value, if the callback has saved one."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with how many values of the statistic have been used."""
        return {**super().state_dict(), "statistic": self.statistic.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.statistic.load_state_dict(state["statistic"])


def statistic_followers(callbacks: Sequence[Any]) -> list[StatisticFollower]:
    """Return the callbacks that follow a statistic, without the proxies around them."""
    inner = [innermost(each) for each in callbacks if isinstance(each, Callback)]
    return [each for each in inner if isinstance(each, StatisticFollower)]
