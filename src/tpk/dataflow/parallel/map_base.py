"""What the parallel maps have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tpk.dataflow.base import ProxyDataFlow
from tpk.dataflow.parallel.read_ahead import ReadAhead
from tpk.errors import ConfigError

MapT = TypeVar("MapT", bound="ParallelMap")


class ParallelMap(ProxyDataFlow):
    """Base of the flows that apply a function to several datapoints at a time.

    Args:
        flow: any iterable of datapoints.
        func: takes a datapoint, returns one or None, which drops it.
        buffer_size: how many datapoints are under way at most.
        ordered: whether the results come in the order of the flow, or as soon as they are there.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], func: Callable[[Any], Any], buffer_size: int, ordered: bool) -> None:
        super().__init__(flow)
        if not callable(func):
            raise ConfigError(f"{type(self).__name__} takes a function that maps a datapoint, not {func!r}")
        self.func = func
        self.buffer_size = buffer_size
        self.ordered = ordered
        self._ahead = ReadAhead(flow, buffer_size + 1)

    def __iter__(self) -> Iterator[Any]:
        return self._deliver(iter(self._ahead))

    def with_sources(self: MapT, sources: Sequence[Iterable[Any]]) -> MapT:
        """Return the same, with workers of its own, on top of another flow."""
        mapped = super().with_sources(sources)
        mapped._ahead = ReadAhead(mapped.flow, self.buffer_size + 1)
        return mapped

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even if a pass is under way."""
        self._ahead.break_off()

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration under way stands: at the first datapoint whose result has not been delivered."""
        return self._ahead.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there."""
        self._ahead.load_state_dict(state)

    @abstractmethod
    def _map(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[tuple[int, Any], None, None]:
        """Deliver pairs of number and result for pairs of number and datapoint."""

    def _deliver(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[Any, None, None]:
        results = self._map(datapoints)
        try:
            for number, result in results:
                self._ahead.finish(number)
                if result is not None:
                    yield result
                    result = None
            self._ahead.end_pass()
        finally:
            results.close()
            datapoints.close()
