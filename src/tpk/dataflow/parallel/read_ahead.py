"""A flow whose datapoints are taken ahead of their use, and whose results may come in another order."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from tpk.dataflow.position import Position, PositionTrail


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

    def end_pass(self) -> None:
        """Note that everything has been used, and the pass is over."""
        self._first_open, self._done = 0, set()
        self._trail.start()
