"""Position of an iteration over a dataflow, from which a resumed run continues."""

from __future__ import annotations

import enum
import logging
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import wraps
from itertools import chain, compress, islice, repeat
from operator import length_hint
from typing import Any, ParamSpec, cast

from tpk.dataflow.foreign import with_position
from tpk.errors import InputError

logger = logging.getLogger(__name__)


ArgumentsT = ParamSpec("ArgumentsT")


class Parts(chain[Any]):
    """An iterator over several iterables in sequence.

    Args:
        parts: yields the iterables. Its code runs only between two of them, and the datapoints are iterated in C. A
            `yield from` in a generator would cost as much per datapoint as a cheap flow.
    """

    _parts: Generator[Iterable[Any], None, None]

    def __new__(cls, parts: Generator[Iterable[Any], None, None]) -> Parts:
        """Create the iterator."""
        self = cast(Parts, cls.from_iterable(parts))
        self._parts = parts
        return self

    def close(self) -> None:
        """Close the generator."""
        self._parts.close()


def _close_each(parts: Generator[Iterable[Any], None, None]) -> Generator[Iterator[Any], None, None]:
    with closing(parts):
        for part in parts:
            iterator = iter(part)
            try:
                yield iterator
            finally:
                close_iterator(iterator, part)


def in_parts(iterate: Callable[ArgumentsT, Generator[Iterable[Any], None, None]]) -> Callable[ArgumentsT, Parts]:
    """Decorate a generator function that yields iterables, so that it returns an iterator over their items.

    It closes the iterator of each of them.
    """

    @wraps(iterate)
    def iterate_parts(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> Parts:
        return Parts(_close_each(iterate(*args, **kwargs)))

    return iterate_parts


class Count:
    """Counts the datapoints of an iteration.

    Incrementing an attribute for each datapoint would cost as much as a cheap flow. Here an iterator in C counts: it
    gives up one of its items with each datapoint.

    Args:
        value: where to start.
    """

    def __init__(self, value: int = 0) -> None:
        self._ticks = repeat(True, sys.maxsize)
        self._end = value + sys.maxsize

    def over(self, datapoints: Iterable[Any]) -> Iterator[Any]:
        """Return an iterator over the datapoints that counts each of them."""
        return compress(datapoints, self._ticks)

    @property
    def value(self) -> int:
        """The number of datapoints."""
        return self._end - length_hint(self._ticks)

    @value.setter
    def value(self, value: int) -> None:
        self._end = value + length_hint(self._ticks)

    def __reduce__(self) -> tuple[type[Count], tuple[int]]:
        return Count, (self.value,)


class PassState(enum.Enum):
    """The state of a `Position`; the values are those of its `state_dict`."""

    BETWEEN = "between passes"
    UNDER_WAY = "under way"
    LEFT = "left in the middle"
    LOADED = "loaded"


class Position:
    """Iterates a flow pass by pass, and saves and restores its position.

    ```
    BETWEEN    iterate          ──▶ UNDER_WAY  in the next pass
    UNDER_WAY  last datapoint   ──▶ BETWEEN
    UNDER_WAY  break_off        ──▶ LEFT       also before another iteration
    LEFT       iterate          ──▶ UNDER_WAY  in the next pass
    any        load_state_dict  ──▶ LOADED
    LOADED     break_off        ──▶ LOADED     with a pass under way LEFT
    LOADED     iterate          ──▶ UNDER_WAY  in the loaded pass if that was UNDER_WAY, otherwise in the next
    ```

    A flow with ``state_dict`` and ``load_state_dict`` keeps its own state. For other flows, datapoints are counted: a
    sequence continues at the right index; other iterables are replayed from their first pass on, which gives the same
    datapoints if they depend only on the number of iterations.

    A flow has one consumer at a time: the position belongs to the last iteration.

    Args:
        flow: any iterable of datapoints.

    Attributes:
        flow: that iterable.
        passes: number of passes that have begun.

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
        self._has_state = has_state(self._source)
        self._has_break_off = self._has_state and callable(getattr(self._source, "break_off", None))
        self.passes = 0
        self._state = PassState.BETWEEN
        self._count = Count()
        self._history: list[list[int | None]] = []  # of former passes: [datapoints, passes in a row]
        # Where the iteration begins: a generator starts only with its first datapoint.
        self._start: Mapping[str, Any] = {}
        self._delivered_before = 0

    @property
    def delivered(self) -> int:
        """The number of datapoints delivered in the current pass."""
        return self._count.value

    def __iter__(self) -> Parts:
        """Begin a pass, or continue from the loaded state."""
        # Not in the generator, which starts later: a second consumer may begin before that.
        if self._state is PassState.LOADED:
            iterator = self._continue(self._start)
        else:
            self.break_off()
            self._start = {} if self._has_break_off else self.state_dict()
            iterator = self._begin()
        self._state, self._delivered_before = PassState.UNDER_WAY, self.delivered
        return Parts(self._deliver(iterator))

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        if self._state is PassState.LOADED:
            self._start = _left(self._start)
        elif self._state is PassState.UNDER_WAY:
            self._state = PassState.LEFT
            if self._has_break_off or (self._has_state and not self._has_moved and _is_under_way(self._start)):
                self._leave_pass()

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data, between two datapoints."""
        if self._state is PassState.LOADED or not self._has_moved:
            return dict(_left(self._start) if self._state is PassState.LEFT else self._start)
        state: dict[str, Any] = {"passes": self.passes, "delivered": self.delivered, "pass": self._state.value}
        if self._has_state:
            state["flow"] = self._source.state_dict()  # type: ignore[attr-defined]
        else:
            state["history"] = [list(run) for run in self._history]
            state["seeds"] = [flow.seed for flow in _with_drawn_seed(self._source)]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; the next iteration continues from there."""
        self._start, self._state = state, PassState.LOADED

    @property
    def _has_moved(self) -> bool:
        """Whether the flow has left the state in which the iteration found it."""
        is_in_pass = self._state in (PassState.UNDER_WAY, PassState.LEFT)
        return self._has_break_off or not is_in_pass or self.delivered != self._delivered_before

    def _leave_pass(self) -> None:
        """Let a flow with its own state end its pass."""
        if self._has_break_off:
            self._source.break_off()  # type: ignore[attr-defined]
        else:
            # A generator restores the loaded state with its first datapoint.
            iterator = iter(self._source)
            next(iterator, None)
            close_iterator(iterator, self._source)

    def _begin(self) -> Iterator[Any]:
        if self.passes:
            self._note(self.delivered if self._state is PassState.LEFT else None)
        self.passes += 1
        self._count = Count()
        return iter(self._source)

    def _note(self, delivered: int | None) -> None:
        """Record the length of a former pass; None if it was complete."""
        if self._history and self._history[-1][0] == delivered:
            self._history[-1][1] += 1  # type: ignore[operator]
        else:
            self._history.append([delivered, 1])

    def _continue(self, state: Mapping[str, Any]) -> Iterator[Any]:
        """Return the iterator at a saved position, or of the next pass."""
        self.passes, self._count, self._state = state["passes"], Count(state["delivered"]), PassState(state["pass"])
        whole = [[None, self.passes - 1]] if self.passes > 1 else []
        self._history = [list(run) for run in state.get("history", whole)]
        continues = self._state is PassState.UNDER_WAY
        if self._has_state and "flow" in state:
            self._source.load_state_dict(state["flow"])  # type: ignore[attr-defined]
            if continues:
                return iter(self._source)
            if self._state is PassState.LEFT:
                self._leave_pass()
            return self._begin()
        for flow, seed in zip(_with_drawn_seed(self._source), state.get("seeds", ()), strict=False):
            flow.seed = seed
        if isinstance(self._source, Sequence):
            if continues:
                return islice(iter(self._source), self.delivered, None)
        elif self.passes:
            replayed = self._replay()
            if continues:
                return replayed
        return self._begin()

    def _replay(self) -> Iterator[Any]:
        """Return the iterator at this position, after iterating all datapoints before it."""
        kind = type(self._source).__name__
        skipped = 0
        for delivered, times in self._history:
            for _ in range(times or 0):
                skipped += _skip(iter(self._source), delivered)
        iterator = iter(self._source)
        is_in_pass = self._state is not PassState.BETWEEN
        found = _skip(iterator, self.delivered if is_in_pass else None)
        skipped += found
        if is_in_pass and found < self.delivered:
            raise InputError(
                f"{kind} cannot continue after {self.delivered} datapoints of pass {self.passes}: iterated again, it "
                f"ended after {found}. Has the data changed? A one-shot iterator cannot be replayed either; give "
                "DataFromGenerator the function that makes it."
            )
        logger.info("%s keeps no position: replayed %d of its datapoints (%d passes)", kind, skipped, self.passes)
        return iterator

    def _deliver(self, iterator: Iterator[Any]) -> Generator[Iterator[Any], None, None]:
        try:
            yield self._count.over(iterator)
            self._state = PassState.BETWEEN
        finally:
            close_iterator(iterator, self._source)


def _is_under_way(state: Mapping[str, Any]) -> bool:
    return PassState(state["pass"]) is PassState.UNDER_WAY


def _left(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state whose pass the next iteration does not continue."""
    return {**state, "pass": PassState.LEFT.value} if _is_under_way(state) else state


def _skip(iterator: Iterator[Any], count: int | None) -> int:
    """Skip up to `count` datapoints, or all; return their number."""
    return sum(1 for _ in islice(iterator, count))


_STATE_EVERY = 16
"""Number of datapoints between two kept states; a resumed run skips the datapoints since the last state."""


class PositionTrail:
    """Counts the datapoints of a reader, and knows its recent positions if it is ahead of its consumer.

    The thread that iterates calls `advance` after each datapoint. Another thread may call `state_at` if the reader may
    be ahead.

    Args:
        position: the position of the reader.
        horizon: the number of datapoints that the reader may be ahead; None until `forget_before` is called.

    Attributes:
        index: the number of datapoints delivered.
    """

    def __init__(self, position: Position, horizon: int | None) -> None:
        self._position = position
        self._keeps_states = horizon != 0
        maxlen = None if horizon is None else horizon // _STATE_EVERY + 3
        self._states: deque[tuple[int, dict[str, Any]]] = deque(maxlen=maxlen)
        self.index = 0

    def start(self, index: int = 0) -> None:
        """Forget earlier positions; `index` datapoints were delivered."""
        self._states.clear()
        self.index = index
        if self._keeps_states:
            self._states.append((index, self._position.state_dict()))

    def advance(self) -> None:
        """Record that one more datapoint was delivered."""
        self.index += 1
        if self._keeps_states and self.index % _STATE_EVERY == 0:
            self._states.append((self.index, self._position.state_dict()))

    def forget_before(self, index: int) -> None:
        """Forget the positions that only earlier datapoints need."""
        while len(self._states) > 1 and self._states[1][0] <= index:
            self._states.popleft()

    def stop(self) -> None:
        """Keep the current position, because the flow is about to be closed."""
        if not self._keeps_states:
            self._keeps_states = True
            self._states.append((self.index, self._position.state_dict()))

    def state_at(self, index: int) -> dict[str, Any]:
        """Return the state after `index` datapoints: a position, and the number of datapoints to skip from there.

        Raises:
            InputError: that is longer ago than the horizon.
        """
        if index == self.index and not self._keeps_states:
            return {"position": self._position.state_dict(), "skip": 0}
        for known, state in reversed(self._states.copy()):
            if known <= index:
                return {"position": state, "skip": index - known}
        raise InputError(
            f"the position after datapoint {index} is no longer known; the reader is at {self.index}. If something "
            "takes datapoints ahead of the steps, set max_ahead of the input source before the training starts"
        )


def has_state(flow: object) -> bool:
    """Whether a flow can save and restore its position."""
    return callable(getattr(flow, "state_dict", None)) and callable(getattr(flow, "load_state_dict", None))


def flows_within(flow: Any) -> list[Any]:
    """Return the flows that a flow reads: its `sources`, and the dataflows among its attributes.

    Most flows that users write have the flow beneath as an attribute, and do not declare `sources`.
    """
    # Look at the class: a user's object may have any attribute.
    found = list(flow.sources) if hasattr(type(flow), "sources") else []
    found += [value for value in getattr(flow, "__dict__", {}).values() if hasattr(type(value), "sources")]
    return list({id(each): each for each in found}.values())


def close_iterator(iterator: Iterator[Any], flow: Iterable[Any]) -> None:
    """Close an iterator over a flow, which releases files and workers, unless it is the flow itself."""
    close = getattr(iterator, "close", None)
    if close is not None and iterator is not flow:
        close()


def _with_drawn_seed(flow: Any) -> Iterator[Any]:
    """Find the random flows with a drawn seed, which a replay needs."""
    if not getattr(flow, "seed_was_chosen", True):
        yield flow
    for source in flows_within(flow):
        yield from _with_drawn_seed(source)
