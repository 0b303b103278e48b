"""Which checkpoints are kept, and which make room for newer ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Retention:
    """Keeps the latest checkpoints, and of those that would go, one of each so many hours for good.

    Args:
        max_to_keep: how many of the latest; 0 or None for all.
        every_n_hours: a checkpoint that would go stays if it is so much younger than the one that stayed before it, or
            than the start.

    Attributes:
        latest: the names of those that will make room one day, the oldest first.
        preserved: the names of those that stay for good, the oldest first.
    """

    def __init__(self, max_to_keep: int | None, every_n_hours: float) -> None:
        self._max_to_keep = max_to_keep or None
        self._period = every_n_hours * 3600
        self._times: dict[str, float] = {}
        self._last_preserved: float | None = None
        self.latest: tuple[str, ...] = ()
        self.preserved: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All that is kept, the oldest first."""
        return [*self.preserved, *self.latest]

    def start(self, now: float) -> None:
        """Count the hours from `now` on, in seconds, unless they are being counted already."""
        if self._last_preserved is None:
            self._last_preserved = now

    def add(self, name: str, now: float) -> list[str]:
        """Take in a new checkpoint, and return the names of those that have to go.

        Args:
            name: its name; if it is known, it is the newest from now on.
            now: the time, in seconds.
        """
        self.start(now)
        assert self._last_preserved is not None
        # A clock that was set back would let no hour pass until it is where it was.
        self._last_preserved = min(self._last_preserved, now)
        self.preserved = tuple(known for known in self.preserved if known != name)
        latest = [*(known for known in self.latest if known != name), name]
        self._times[name] = now
        gone = []
        while self._max_to_keep is not None and len(latest) > self._max_to_keep:
            oldest = latest.pop(0)
            taken = self._times.pop(oldest, now)
            if taken - self._last_preserved >= self._period:
                self._last_preserved = taken
                self.preserved = (*self.preserved, oldest)
            else:
                gone.append(oldest)
        self.latest = tuple(latest)
        return gone

    def state_dict(self) -> dict[str, Any]:
        """Return what is kept for good, and since when the hours count."""
        return {"preserved": list(self.preserved), "last_preserved": self._last_preserved, "times": dict(self._times)}

    def load_state_dict(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Take back what `state_dict` returned.

        Args:
            state: what it returned.
            names: the checkpoints that are there, the oldest first.
        """
        self.preserved = tuple(name for name in state["preserved"] if name in names)
        self.latest = tuple(name for name in names if name not in self.preserved)
        self._times = {name: float(time) for name, time in state["times"].items() if name in self.latest}
        last = state["last_preserved"]
        self._last_preserved = None if last is None else float(last)
