"""Base of the parallel maps: datapoints taken ahead, results in any order, and where that stands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tpk.dataflow.base import ProxyDataFlow
from tpk.dataflow.position import Position, PositionTrail
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


class ReadAhead:
    """Hands out the numbered datapoints of a flow, and knows which of them are done with.

    A resumed pass begins with the first one that was not; those after it that were are not handed out again.

    Args:
        flow: any iterable of datapoints.
        horizon: how many datapoints are under way at most.
    """

    def __init__(self, flow: Iterable[Any], horizon: int) -> None:
        self._position = Position(flow)
        self._trail = PositionTrail(self._position, horizon)
        self._trail.start()
        self._first_open = 0
        self._done: set[int] = set()
        self._loaded: Mapping[str, Any] | None = None

    def __iter__(self) -> Generator[tuple[int, Any], None, None]:
        """Begin a pass, or go on with the one whose state was loaded: deliver pairs of number and datapoint."""
        loaded, self._loaded = self._loaded, None
        self._first_open, self._done = 0, set()
        skip = 0
        if loaded is not None:
            self._position.load_state_dict(loaded["position"])
            skip = loaded["skip"]
            self._done = set(loaded["done"])
        datapoints = iter(self._position)
        self._trail.start(-skip)
        return self._deliver(datapoints)

    def finish(self, number: int) -> None:
        """Note that the result of a datapoint has been used."""
        self._done.add(number)
        while self._first_open in self._done:
            self._done.remove(self._first_open)
            self._first_open += 1

    def end_pass(self) -> None:
        """Note that everything has been used, and the pass is over."""
        self._first_open, self._done = 0, set()
        self._trail.start()

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even if a pass is under way."""
        if self._loaded is not None:
            self._position.load_state_dict(self._loaded["position"])
            self._loaded = None
        self._position.break_off()
        self.end_pass()

    def state_dict(self) -> dict[str, Any]:
        """Return where the first datapoint stands that is not done with, and which ones after it are."""
        if self._loaded is not None:
            return dict(self._loaded)
        done = sorted(number - self._first_open for number in self._done)
        return {**self._trail.state_at(self._first_open), "done": done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there."""
        self._loaded = state

    def _deliver(self, datapoints: Generator[Any, None, None]) -> Generator[tuple[int, Any], None, None]:
        try:
            for datapoint in datapoints:
                number = self._trail.index
                self._trail.advance()
                if number >= 0 and number not in self._done:
                    yield number, datapoint
        finally:
            datapoints.close()
