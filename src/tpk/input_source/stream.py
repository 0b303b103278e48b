"""The datapoints of a dataflow as an input source consumes them: pass after pass, checked and counted."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Iterator, Mapping
from threading import get_ident
from typing import Any, NoReturn

from tpk.dataflow.base import (
    DataFlow,
    check_iterable,
    close_dataflow,
    error_of_data,
    flow_length,
    may_refill,
    reset_state,
    shard,
    why_empty,
)
from tpk.dataflow.memory import copy_array
from tpk.dataflow.position import Parts, Position, PositionTrail
from tpk.dataflow.transforms.map import log_undivided
from tpk.dataflow.transforms.repeat import FixedSizeData
from tpk.dataflow.transforms.shuffle import CacheData
from tpk.errors import InputError, add_note
from tpk.graph.signature import Array
from tpk.hang_watcher import stack_of
from tpk.input_source.datapoint import DatapointConverter

logger = logging.getLogger(__name__)

_AT_THE_BEGINNING: dict[str, Any] = {"position": None, "skip": 0, "ended": False}


class StreamState(enum.Enum):
    """The state of a `DatapointStream`."""

    REWOUND, RUNNING, ENDED = range(3)


class DatapointStream:
    """An iterator over the arrays of a flow's datapoints that can start again and knows its position.

    The arrays never change afterwards: if the flow may write to its arrays again, they are copied. TensorFlow uses
    arrays that start on a multiple of 64 bytes without a copy, and may hold them for longer than it takes to make the
    next datapoint: in a queue, in a variable, or for another tower.

    To start, call `rewind` and then `start`; the thread that iterates calls `start`.

    ```
    REWOUND  start                ──▶ RUNNING  unless the loaded position is at the end of the data
    RUNNING  end of the last pass ──▶ ENDED
    any      rewind               ──▶ REWOUND  at the loaded position, otherwise at the first datapoint
    ```

    Args:
        flow: any iterable of datapoints.
        infinite: whether to start another pass over the flow when it is exhausted.
        owner: the name of the input source, for messages and in the state.
        may_be_empty: whether a finite flow may have no datapoints, as a process's share of an evaluation may.

    Attributes:
        flow: the dataflow, or this process's share of it.
        position: the position in the flow.
        infinite: as above; it may change before the start, and to False at any time.
        may_be_empty: as above.
        owner: the name of the input source.
        resumed_at: how many datapoints had been used before the last start: 0, unless a state was loaded.
        busy_thread: the identifier of the thread that is in the flow's code, or 0.

    Raises:
        ConfigError: `flow` cannot be iterated.
    """

    def __init__(self, flow: Iterable[Any], *, infinite: bool, owner: str, may_be_empty: bool = True) -> None:
        check_iterable(flow, owner)
        self.flow = flow
        self.infinite = infinite
        self.may_be_empty = may_be_empty
        self.owner = owner
        self.resumed_at = 0
        self.busy_thread = 0
        self.position = Position(flow)
        self._trail = PositionTrail(self.position, 0)
        self._loaded: Mapping[str, Any] | None = None
        self._start = _AT_THE_BEGINNING
        self._state = StreamState.REWOUND
        self._pass_start: int | None = None
        self._flow_is_ready = False
        self._copies = True
        self._iterator: Iterator[Any] = _NotStarted(owner)

    @property
    def index(self) -> int:
        """How many datapoints have been delivered, counted from `resumed_at`."""
        return self._trail.index

    def shard(self, index: int, count: int) -> None:
        """Deliver only the share of process `index` of `count`. Called before anything was delivered."""
        self.flow = shard(self.flow, index, count)
        if count > 1:
            log_undivided(self.flow, self.owner, f"the {count} processes", logging.INFO)
        self.position = Position(self.flow)

    def keep_first(self, count: int) -> None:
        """Deliver the first `count` datapoints in every pass. Called before anything was delivered."""
        self.flow = CacheData(FixedSizeData(self.flow, count))
        self.position = Position(self.flow)

    def end_after_this_pass(self) -> None:
        """Start no further pass, and allow for a pass without datapoints."""
        self.infinite, self.may_be_empty = False, True

    def bind(self, signature: tuple[Any, ...], converter: type[DatapointConverter] = DatapointConverter) -> None:
        """Set the signature that the datapoints must fit, and the class of what makes them fit."""
        self._convert = converter(signature, self.owner)

    def rewind(self, horizon: int = 0) -> None:
        """Prepare a start from the loaded state if there is one, otherwise from the first datapoint of the flow.

        Args:
            horizon: how many of the delivered datapoints may not have been used yet.
        """
        self.close()
        loaded, self._loaded = self._loaded, None
        self._state = StreamState.REWOUND
        self.resumed_at = 0 if loaded is None else loaded["datapoints"]
        self._trail = PositionTrail(self.position, horizon)
        self._trail.index = self.resumed_at
        if loaded is None:
            self.position.break_off()
            # A flow need not know its position before its `reset_state`.
            position = self.position.state_dict() if self._flow_is_ready else None
            self._start = {**_AT_THE_BEGINNING, "position": position}
        else:
            if loaded["position"] is not None:
                self.position.load_state_dict(loaded["position"])
            self._start = {key: loaded[key] for key in _AT_THE_BEGINNING}
        # None: a resumed pass may have no datapoints left.
        self._pass_start = 0 if loaded is None else None

    def start(self) -> None:
        """Start the flow where `rewind` has said.

        Raises:
            InputError: the flow is a one-shot iterator that has been used already.
        """
        self.busy_thread = get_ident()
        try:
            if not self._flow_is_ready:
                reset_state(self.flow)
                self._flow_is_ready = True
            if isinstance(self.flow, Iterator) and (self.position.passes > 1 or self.position.delivered):
                raise InputError(f"{self.owner} cannot start from the beginning again: {self._one_shot()}")
            self._copies = may_refill(self.flow)
            if self._start["ended"] and not self.infinite:
                self._iterator = iter(())
            else:
                self._resume(self._start["skip"])
        except BaseException as error:
            self._raise_failure(error)
        finally:
            self.busy_thread = 0

    def __iter__(self) -> DatapointStream:
        return self

    def __next__(self) -> list[Array]:
        self.busy_thread = get_ident()
        try:
            datapoint = self._take()
        except StopIteration:
            raise
        except BaseException as error:
            self._raise_failure(error)
        finally:
            self.busy_thread = 0
        index = self._trail.index
        self._trail.advance()
        arrays = self._convert(datapoint, index)
        return list(map(copy_array, arrays)) if self._copies else arrays

    def close(self) -> None:
        """Close the flow's iterator, and the files and workers behind it."""
        iterator, self._iterator = self._iterator, _NotStarted(self.owner)
        if isinstance(iterator, Parts):
            iterator.close()

    def finish(self) -> None:
        """Close everything that the flow holds, at the end of the training; the position stays known."""
        busy = self.busy_thread
        if busy and busy != get_ident():
            logger.warning("%s: the data code did not return; it keeps running at\n%s", self.owner, stack_of(busy))
            return
        try:
            if self._state is not StreamState.REWOUND:
                self._trail.stop()
        finally:
            self.close()
            close_dataflow(self.flow)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the state after `count` datapoints have been used, as plain data.

        Args:
            count: at least `resumed_at`, and at most `horizon` before `index`.
        """
        facts = {"source": self.owner, "flow": _structure_of(self.flow), "size": flow_length(self.flow)}
        if self._loaded is not None:
            return dict(self._loaded)
        if self._state is StreamState.REWOUND:
            return {**facts, "datapoints": self.resumed_at, **self._start}
        # Callers count too many after the end of the source. Skipped datapoints have been used.
        count = min(count, max(self.index, self.resumed_at))
        where = self._trail.state_at(count)
        has_ended = self._state is StreamState.ENDED and count == self.index
        return {**facts, "datapoints": count, **where, "ended": has_ended}

    def load(self, state: Mapping[str, Any]) -> None:
        """Let the next start continue from a state.

        Raises:
            InputError: the state is from another kind of source, or from another flow.
        """
        if state.get("source") != self.owner:
            raise InputError(
                f"{self.owner} cannot continue from a position of {state.get('source', 'something else')!r}: resume "
                "with the kind of input source that the run began with, or begin a new run"
            )
        flow, size = _structure_of(self.flow), flow_length(self.flow)
        if (state["flow"], state["size"]) != (flow, size):
            raise InputError(
                f"{self.owner} cannot continue: the position is in {state['flow']}, {_of_size(state['size'])}, but "
                f"the data is {flow} now, {_of_size(size)}. Resume with the same data, or begin a new run"
            )
        self._loaded = dict(state)

    def _resume(self, skip: int) -> None:
        """Start to iterate at the position, and skip what was used after it."""
        self._trail.start(self.resumed_at - skip)
        self._iterator = iter(self.position)
        self._state = StreamState.RUNNING
        try:
            for _ in range(skip):
                self._take()
                self._trail.advance()
        except StopIteration:
            raise InputError(
                f"{self.owner} cannot continue after {self.resumed_at} datapoints: the dataflow "
                f"{type(self.flow).__name__} ended after {self.index}. Has the data changed?"
            ) from None

    def _take(self) -> Any:
        """Return the next datapoint of the flow; raise StopIteration if there are no more."""
        datapoint = next(self._iterator, _END)
        return self._first_of_next_pass() if datapoint is _END else datapoint

    def _first_of_next_pass(self) -> Any:
        """Return the first datapoint of another pass; raise StopIteration after the last pass."""
        if not self.infinite:
            if self._state is StreamState.RUNNING:
                self._state = StreamState.ENDED
            if self.index > 0 or self.may_be_empty:
                raise StopIteration
        if not self.infinite or self.index == self._pass_start:
            raise InputError(f"{self.owner}: there is no data: {why_empty(self.flow)}")
        self._pass_start = self.index
        self._iterator = iter(self.position)
        datapoint = next(self._iterator, _END)
        if datapoint is _END:
            one_shot = f": {self._one_shot()}" if isinstance(self.flow, Iterator) else ""
            raise InputError(
                f"{self.owner}: the dataflow {type(self.flow).__name__} delivered {self.index} datapoints, "
                f"and nothing when it was iterated again{one_shot}"
            )
        return datapoint

    def _one_shot(self) -> str:
        return f"{self.flow!r} is a one-shot iterator; give DataFromGenerator the function that makes it, or use a list"

    def _raise_failure(self, error: BaseException) -> NoReturn:
        """Raise an error of the data code, or an `InputError` instead of one that would end the process."""
        failure = error_of_data(error, self.owner)
        if failure is not error:
            raise failure from error
        add_note(error, f"raised while {self.owner} took datapoint {self.index} from {type(self.flow).__name__}")
        raise error


def _structure_of(flow: Iterable[Any]) -> str:
    """Return the classes of which a dataflow is composed, such as ``"BatchData(DataFromList)"``.

    Flows with different structures cannot have a position in common.
    """
    kind = type(flow).__name__
    sources = flow.sources if isinstance(flow, DataFlow) else ()
    return f"{kind}({', '.join(map(_structure_of, sources))})" if sources else kind


def _of_size(size: int | None) -> str:
    return "of unknown length" if size is None else f"of length {size}"


class _NotStarted(Iterator[Any]):
    """The iterator of a stream that is not started."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __next__(self) -> Any:
        raise InputError(f"{self._owner} was asked for data outside of a training; its before_train starts it")


_END = object()
