"""What the input sources that take their data from a dataflow have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tpk.dataflow.base import seed_dataflow
from tpk.dataflow.position import Position
from tpk.input_source.base import InputSource
from tpk.input_source.flow_facts import flow_size
from tpk.input_source.hang_watcher import check_warn_after, hang_watcher
from tpk.input_source.stream import DatapointStream


class FlowInput(InputSource):
    """Base of the sources of a dataflow's datapoints: their length, seeds and positions.

    Args:
        flow: any iterable of datapoints.
        infinite: whether the flow is started again when it is exhausted.
        warn_after: seconds in which the data code has to deliver a datapoint; else a warning tells where it is.

    Raises:
        ConfigError: `flow` cannot be iterated, or `warn_after` is not positive.
    """

    def __init__(self, flow: Iterable[Any], infinite: bool, warn_after: float) -> None:
        self._stream = DatapointStream(flow, infinite=infinite, owner=type(self).__name__)
        self._warn_after = check_warn_after(warn_after, type(self).__name__)

    @property
    def flow(self) -> Iterable[Any]:
        """The dataflow, or the share of it that this process has."""
        return self._stream.flow

    @property
    def size(self) -> int | None:
        """The length of the flow, or None if it has none."""
        return flow_size(self.flow)

    def end_after_each_pass(self) -> bool:
        """Do not start the flow again when it is exhausted."""
        self._stream.infinite = False
        return True

    @property
    def position(self) -> Position:
        """The position of the flow."""
        return self._stream.position

    def shard(self, index: int, count: int) -> None:
        """Take only a share of the flow, as `tpk.dataflow.shard` makes it."""
        self._stream.shard(index, count)

    def seed(self, seed: int) -> None:
        """Seed every `RNGDataFlow` in the flow whose seed was not chosen."""
        seed_dataflow(self.flow, seed)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position in the flow."""
        return self._stream.state_after(count)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the data start from there; an empty state is the beginning."""
        if state:
            self._stream.load(state)

    def _watch(self) -> None:
        """Have a warning logged when the data code hangs, from now on until `_unwatch`."""
        hang_watcher.watch(self._stream, self._warn_after)

    def _unwatch(self) -> None:
        hang_watcher.unwatch(self._stream)
