"""A statistic that a callback follows: each of its values is looked at once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpk.plugin.trainer import MonitorsProtocol

logger = logging.getLogger(__name__)


class Statistic:
    """Follows a scalar that the monitors know.

    Args:
        name: its name.
        owner: who follows it, for messages.

    Attributes:
        name: its name.
    """

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self._owner = owner
        self._seen = 0
        self._warned = False

    def take_new(self, monitors: MonitorsProtocol) -> float | None:
        """Return the latest value, or None if there has been none since the last call."""
        if self.name not in monitors.names:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "%s: there is no statistic %r yet; there are: %s",
                    self._owner,
                    self.name,
                    ", ".join(sorted(monitors.names)) or "none",
                )
            return None
        history = monitors.get_history(self.name)
        seen, self._seen = self._seen, len(history)
        return history[-1][1] if len(history) > seen else None

    def state_dict(self) -> dict[str, Any]:
        """Return how many values have been looked at."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._seen = state["seen"]
