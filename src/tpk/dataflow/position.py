"""Position of an iteration over a dataflow, from which a resumed run goes on."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tpk.dataflow.foreign import with_position
from tpk.errors import InputError

logger = logging.getLogger(__name__)


class Position:
    """Iterates a flow pass by pass, and can say and take back where it stands.

    A flow with ``state_dict`` and ``load_state_dict`` is asked for its own state. Of any other the datapoints are
    counted: a sequence goes on at the right index, the rest is replayed from its first pass on, which gives the same
    datapoints if they depend on nothing but how often the flow was iterated.

    A flow is iterated by one consumer at a time: the position is that of the iteration that began last. A pass that is
    not iterated to its end is broken off: the next iteration begins the next pass.

    Args:
        flow: any iterable of datapoints.

    Attributes:
        flow: that iterable.
        passes: how many passes have begun.
        delivered: how many datapoints the pass under way has delivered.

    Example:
        ```python
        position = Position(flow)
        for datapoint in position:
            state = position.state_dict()  # after this datapoint
            break
        position.load_state_dict(state)
        rest = list(position)
        ```
    """

    def __init__(self, flow: Iterable[Any]) -> None:
        self.flow = flow
        self._source = with_position(flow)
        self.passes = 0
        self.delivered = 0
        self._in_pass = False
        self._broken_off = False
        self._history: list[list[int | None]] = []  # of the former passes: how many datapoints, and how often in a row
        self._before: dict[str, Any] = {}
        self._begun_at = 0
        self._goes_on = False
        self._loaded: Mapping[str, Any] | None = None

    def __iter__(self) -> Generator[Any, None, None]:
        """Begin a pass, or go on with the one whose state was loaded."""
        # Not in the generator: two consumers that begin in turn must each get what was there at their turn.
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            self.break_off()
            before = {} if self._is_told else self.state_dict()
            iterator = self._begin()
        else:
            before = dict(loaded)
            iterator = self._go_on(loaded)
        self._before, self._begun_at = before, self.delivered
        self._goes_on = bool(loaded and loaded["in_pass"] and not loaded.get("broken_off"))
        self._in_pass, self._broken_off = True, False
        return self._deliver(iterator)

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        if self._loaded is not None:
            self._loaded = {**self._loaded, "broken_off": self._loaded["in_pass"]}
        elif self._in_pass and not self._broken_off:
            self._broken_off = True
            if self._is_told:
                self._tell()
            elif has_state(self._source) and self._has_just_begun and self._goes_on:
                self._take_state_back()

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data; meant to be called between two datapoints."""
        if self._loaded is not None:
            return dict(self._loaded)
        if self._has_just_begun and not self._is_told:
            # A flow that is a generator has not begun yet, so its own state may still be that of the pass before.
            return {**self._before, "broken_off": True} if self._broken_off else dict(self._before)
        state: dict[str, Any] = {"passes": self.passes, "delivered": self.delivered, "in_pass": self._in_pass}
        if self._broken_off:
            state["broken_off"] = True
        if has_state(self._source):
            state["flow"] = self._source.state_dict()  # type: ignore[attr-defined]
        else:
            state["history"] = [list(run) for run in self._history]
            state["seeds"] = [flow.seed for flow in _with_drawn_seed(self._source)]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned; the next iteration goes on from there."""
        self._loaded = state

    @property
    def _is_told(self) -> bool:
        """Whether the flow takes part in breaking off; of any other the iteration shows what it does."""
        return has_state(self._source) and callable(getattr(self._source, "break_off", None))

    def _tell(self) -> None:
        self._source.break_off()  # type: ignore[attr-defined]

    def _take_state_back(self) -> None:
        """Make the flow begin to iterate: one that is a generator takes its state back only then."""
        iterator = iter(self._source)
        next(iterator, None)
        close_iterator(iterator, self._source)

    @property
    def _has_just_begun(self) -> bool:
        return self._in_pass and self.delivered == self._begun_at

    def _begin(self) -> Iterator[Any]:
        if self.passes:
            self._note(self.delivered if self._in_pass else None)
        self.passes += 1
        self.delivered = 0
        return iter(self._source)

    def _note(self, delivered: int | None) -> None:
        """Note how far a former pass went, None for all the way."""
        if self._history and self._history[-1][0] == delivered:
            self._history[-1][1] += 1  # type: ignore[operator]
        else:
            self._history.append([delivered, 1])

    def _go_on(self, state: Mapping[str, Any]) -> Iterator[Any]:
        self.passes, self.delivered = state["passes"], state["delivered"]
        self._in_pass = state["in_pass"]
        whole = [[None, self.passes - 1]] if self.passes > 1 else []
        self._history = [list(run) for run in state.get("history", whole)]
        if has_state(self._source) and "flow" in state:
            self._source.load_state_dict(state["flow"])  # type: ignore[attr-defined]
            if not self._in_pass:
                return self._begin()
            if not state.get("broken_off"):
                return iter(self._source)
            if self._is_told:
                self._tell()
            else:
                self._take_state_back()
            return self._begin()
        for flow, seed in zip(_with_drawn_seed(self._source), state.get("seeds", ()), strict=False):
            flow.seed = seed
        if isinstance(self._source, Sequence):
            if not self._in_pass or state.get("broken_off"):
                return self._begin()
            return islice(iter(self._source), self.delivered, None)
        return self._replay(state) if self.passes else self._begin()

    def _replay(self, state: Mapping[str, Any]) -> Iterator[Any]:
        """Return the iterator as it was in that pass, by going there through all that was delivered before."""
        kind = type(self._source).__name__
        skipped = 0
        for delivered, times in self._history:
            for _ in range(times or 0):
                skipped += self._skip(iter(self._source), delivered)
        iterator = iter(self._source)
        found = self._skip(iterator, self.delivered if self._in_pass else None)
        skipped += found
        if self._in_pass and found < self.delivered:
            raise InputError(
                f"{kind} cannot go on after {self.delivered} datapoints of pass {self.passes}: iterated again, it "
                f"ended after {found}. Has the data changed? A one-shot iterator cannot be replayed either; give "
                "DataFromGenerator the function that makes it."
            )
        logger.info("%s keeps no position: replayed %d datapoints of it (%d passes)", kind, skipped, self.passes)
        if not self._in_pass or state.get("broken_off"):
            return self._begin()
        return iterator

    def _skip(self, iterator: Iterator[Any], count: int | None) -> int:
        return sum(1 for _ in islice(iterator, count))

    def _deliver(self, iterator: Iterator[Any]) -> Generator[Any, None, None]:
        try:
            for datapoint in iterator:
                self.delivered += 1
                yield datapoint
                datapoint = None  # so that its memory may serve for the next one
            self._in_pass = False
        finally:
            close_iterator(iterator, self._source)


_STATE_EVERY = 16
"""Datapoints from one state that is kept to the next; those between are skipped when the run is resumed."""


class PositionTrail:
    """The recent positions of a consumer that reads ahead of whoever uses the data.

    `advance` is called after each datapoint, by the thread that iterates. `state_at` may be called by another thread.

    Args:
        position: where the reading stands.
        horizon: how many datapoints the reader may be ahead.
    """

    def __init__(self, position: Position, horizon: int) -> None:
        self._position = position
        self._states: deque[tuple[int, dict[str, Any]]] = deque(maxlen=horizon // _STATE_EVERY + 3)
        self.index = 0

    def start(self, index: int = 0) -> None:
        """Forget what was before; `index` datapoints have been delivered."""
        self._states.clear()
        self.index = index
        self._states.append((index, self._position.state_dict()))

    def advance(self) -> None:
        """Note that one more datapoint has been delivered."""
        self.index += 1
        if self.index % _STATE_EVERY == 0:
            self._states.append((self.index, self._position.state_dict()))

    def state_at(self, index: int) -> dict[str, Any]:
        """Return the state after `index` datapoints: a position, and how many datapoints to skip from there.

        Raises:
            InputError: if that is longer ago than the horizon.
        """
        for known, state in reversed(self._states.copy()):
            if known <= index:
                return {"position": state, "skip": index - known}
        raise InputError(f"the position after datapoint {index} is no longer known; the reader is at {self.index}")


def has_state(flow: object) -> bool:
    """Whether a flow can say where it stands, and take that back."""
    return callable(getattr(flow, "state_dict", None)) and callable(getattr(flow, "load_state_dict", None))


def flows_within(flow: Any) -> list[Any]:
    """Return the flows that a flow reads: its `sources`, and the dataflows that it keeps as attributes.

    Most flows that users write keep the flow beneath as an attribute, and declare no `sources`.
    """
    # Only its class tells that something is a dataflow: a user's object may have any attribute.
    found = list(flow.sources) if hasattr(type(flow), "sources") else []
    found += [value for value in getattr(flow, "__dict__", {}).values() if hasattr(type(value), "sources")]
    return list({id(each): each for each in found}.values())


def close_iterator(iterator: Iterator[Any], flow: Iterable[Any]) -> None:
    """Let an iterator of a flow go of its files and workers; one that the user made is the user's to close."""
    close = getattr(iterator, "close", None)
    if close is not None and iterator is not flow:
        close()


def _with_drawn_seed(flow: Any) -> Iterator[Any]:
    """Find the flows with randomness whose seed nobody chose: a replay needs the one that was drawn."""
    if not getattr(flow, "seed_was_chosen", True):
        yield flow
    for source in flows_within(flow):
        yield from _with_drawn_seed(source)
