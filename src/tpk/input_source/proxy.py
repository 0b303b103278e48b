"""A source that stands on another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpk.dataflow.position import Position
from tpk.input_source.base import InputSource


class ProxyInput(InputSource):
    """Base of the sources that take their data from another source: size, end, seeds and positions are that one's.

    Args:
        source: the other one.
    """

    def __init__(self, source: InputSource) -> None:
        self.source = source

    @property
    def size(self) -> int | None:
        """The size of the source."""
        return self.source.size

    def end_after_each_pass(self) -> bool:
        """Let the source end."""
        return self.source.end_after_each_pass()

    @property
    def position(self) -> Position | None:
        """The position of the source's dataflow."""
        return self.source.position

    def seed(self, seed: int) -> None:
        """Seed the source."""
        self.source.seed(seed)

    def shard(self, index: int, count: int) -> None:
        """Let the source deliver only a share."""
        self.source.shard(index, count)

    def datapoints_of(self, takes: range) -> range:
        """Ask the source, which counts as this one does."""
        return self.source.datapoints_of(takes)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position of the source."""
        return self.source.state_after(count)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the source back its position."""
        self.source.load_state_dict(state)
