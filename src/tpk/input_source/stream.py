"""Stream of the datapoints of a dataflow, as an input source consumes them: pass after pass, checked and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import wraps
from threading import get_ident
from typing import Any, Concatenate, ParamSpec, TypeVar

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
from tpk.dataflow.position import Position, PositionTrail
from tpk.dataflow.transforms.map import tell_of_undivided
from tpk.dataflow.transforms.repeat import FixedSizeData
from tpk.dataflow.transforms.shuffle import CacheData
from tpk.errors import InputError, add_note
from tpk.input_source.datapoint import Array, DatapointConverter
from tpk.input_source.hang_watcher import stack_of

logger = logging.getLogger(__name__)

_AT_THE_BEGINNING: dict[str, Any] = {"position": None, "skip": 0, "ended": False}

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _in_data_code(
    method: Callable[Concatenate[DatapointStream, Parameters], Result],
) -> Callable[Concatenate[DatapointStream, Parameters], Result]:
    """Decorate a method that runs the user's code, which must not end the process."""

    @wraps(method)
    def guarded(stream: DatapointStream, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return method(stream, *args, **kwargs)
        except Exception:
            raise
        except BaseException as error:
            failure = error_of_data(error, stream.owner)
            if failure is error:
                raise
            raise failure from error

    return guarded


class DatapointStream:
    """An iterator over the arrays of a flow's datapoints, which can be started again, and knows where it stands.

    The arrays stay as they are, whatever the flow does: those of one that may write to them again are copied.
    TensorFlow takes arrays that start on a multiple of 64 bytes without a copy, and may have them for longer than until
    the next datapoint is made: in a queue, in a variable, or for another tower.

    To start, `rewind` and then `start` are called; the latter, like `next`, by the thread that iterates.

    Args:
        flow: any iterable of datapoints.
        infinite: whether another pass over the flow follows when one is over.
        owner: the name of the input source, for messages and in the state.

    Attributes:
        flow: the dataflow, or the share of it that this process has.
        position: where it stands.
        infinite: as above; it may change before the start, and to False at any time.
        may_be_empty: whether it is no error if a flow that is not infinite has no datapoint, as a share of an
            evaluation may have none.
        owner: the name of the input source.
        resumed_at: how many datapoints had been used before the last start: 0, unless a state was loaded.
        index: how many datapoints have been delivered; it goes on from `resumed_at`.
        busy_thread: the identifier of the thread that is in the flow's code, or 0.

    Raises:
        ConfigError: `flow` cannot be iterated.
    """

    def __init__(self, flow: Iterable[Any], *, infinite: bool, owner: str) -> None:
        check_iterable(flow, owner)
        self.flow = flow
        self.infinite = infinite
        self.may_be_empty = True
        self.owner = owner
        self.resumed_at = 0
        self.index = 0
        self.busy_thread = 0
        self.position = Position(flow)
        self._trail: PositionTrail | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._start_state = _AT_THE_BEGINNING
        self._is_started = False
        self._has_ended = False
        self._was_iterated = False
        self._pass_start = 0
        self._flow_is_ready = False
        self._copies = True
        self._iterator: Iterator[Any] = _NotStarted(owner)

    def shard(self, index: int, count: int) -> None:
        """Deliver only the share of process `index` of `count`; before anything was delivered."""
        self.flow = shard(self.flow, index, count)
        if count > 1:
            tell_of_undivided(self.flow, self.owner, f"the {count} processes", logging.INFO)
        self.position = Position(self.flow)

    def keep_first(self, count: int) -> None:
        """Deliver the first `count` datapoints in every pass; before anything was delivered."""
        self.flow = CacheData(FixedSizeData(self.flow, count))
        self.position = Position(self.flow)

    def bind(self, signature: tuple[Any, ...]) -> None:
        """Say what the datapoints must fit."""
        self._convert = DatapointConverter(signature, self.owner)

    @_in_data_code
    def rewind(self, horizon: int = 0) -> None:
        """Make ready to start: from the loaded state if there is one, else from the first datapoint of the flow.

        Args:
            horizon: how many datapoints may be delivered that have not been used yet.
        """
        self.close()
        loaded, self._loaded = self._loaded, None
        self._is_started = False
        self._has_ended = loaded is not None and loaded["ended"] and not self.infinite
        self.resumed_at = 0 if loaded is None else loaded["datapoints"]
        self.index = self.resumed_at
        self._trail = PositionTrail(self.position, horizon) if horizon else None
        if loaded is None:
            self.position.break_off()
            # A flow need not know where it stands before it has been made ready.
            position = self.position.state_dict() if self._flow_is_ready else None
            self._start_state = {**_AT_THE_BEGINNING, "position": position}
        else:
            if loaded["position"] is not None:
                self.position.load_state_dict(loaded["position"])
            self._start_state = {key: loaded[key] for key in _AT_THE_BEGINNING}
        # Of a pass that is resumed nothing may be left.
        self._pass_start = self.index if loaded is None else -1

    @_in_data_code
    def start(self) -> None:
        """Start the flow where `rewind` has said.

        Raises:
            InputError: the flow is a one-shot iterator of which something has been taken already.
        """
        self.busy_thread = get_ident()
        try:
            if not self._flow_is_ready:
                reset_state(self.flow)
                self._flow_is_ready = True
            if self._was_iterated and isinstance(self.flow, Iterator):
                raise InputError(f"{self.owner} cannot start from the beginning again: {self._one_shot()}")
            self._copies = may_refill(self.flow)
            if self._has_ended:
                self._iterator = iter(())
            else:
                self._go_on(self._start_state["skip"])
        except Exception as error:
            self._note(error)
            raise
        finally:
            self.busy_thread = 0

    def __iter__(self) -> DatapointStream:
        return self

    @_in_data_code
    def __next__(self) -> list[Array]:
        self.busy_thread = get_ident()
        try:
            datapoint = next(self._iterator)
        except StopIteration:
            if not self.infinite:
                self._has_ended = True
                if self.index == 0 and not self.may_be_empty:
                    raise self._is_empty() from None
                raise
            datapoint = self._first_of_next_pass()
        except Exception as error:
            self._note(error)
            raise
        finally:
            self.busy_thread = 0
        index = self.index
        self.index = index + 1
        if self._trail is not None:
            self._trail.advance()
        arrays = self._convert(datapoint, index)
        return list(map(copy_array, arrays)) if self._copies else arrays

    @_in_data_code
    def close(self) -> None:
        """Let go of the flow's iterator, and of the files and workers behind it."""
        iterator, self._iterator = self._iterator, _NotStarted(self.owner)
        if isinstance(iterator, Generator):
            self._was_iterated = self._was_iterated or self.index > self.resumed_at
            iterator.close()

    @_in_data_code
    def finish(self) -> None:
        """Let go of all that the flow keeps, too, when the training is over; the position stays known."""
        busy = self.busy_thread
        if busy and busy != get_ident():
            logger.warning("%s: the data code has not returned; it is left behind at\n%s", self.owner, stack_of(busy))
            return
        try:
            if self._is_started and self._trail is None:
                self._start_state = {key: self.state_after(self.index)[key] for key in _AT_THE_BEGINNING}
                self.resumed_at, self._is_started = self.index, False
        finally:
            self.close()
            close_dataflow(self.flow)

    @_in_data_code
    def state_after(self, count: int) -> dict[str, Any]:
        """Return the state in which `count` datapoints have been used, as plain data.

        Args:
            count: from `resumed_at` on; not more than `horizon` before `index`.
        """
        facts = {"source": self.owner, "flow": _structure_of(self.flow), "size": flow_length(self.flow)}
        if self._loaded is not None:
            return dict(self._loaded)
        if not self._is_started:
            return {**facts, "datapoints": self.resumed_at, **self._start_state}
        # Whoever counts them counts too many when the source has ended. What is skipped has been used.
        count = min(count, max(self.index, self.resumed_at))
        if self._trail is not None:
            where = self._trail.state_at(count)
        elif count == self.index:
            where = {"position": self.position.state_dict(), "skip": 0}
        else:
            raise InputError(
                f"{self.owner} does not know any more where datapoint {count} of {self.index} was. Set its max_ahead "
                "before the training starts, if something takes datapoints from it ahead of the steps"
            )
        return {**facts, "datapoints": count, **where, "ended": self._has_ended and count == self.index}

    def load(self, state: Mapping[str, Any]) -> None:
        """Let the next start go on from there.

        Raises:
            InputError: the state is of another kind of source, or of another flow.
        """
        if state.get("source") != self.owner:
            raise InputError(
                f"{self.owner} cannot go on from a position of {state.get('source', 'something else')!r}: resume with "
                "the kind of input source that the run began with, or begin a new run"
            )
        flow, size = _structure_of(self.flow), flow_length(self.flow)
        if (state["flow"], state["size"]) != (flow, size):
            raise InputError(
                f"{self.owner} cannot go on: the position is one in {state['flow']}, {_of_size(state['size'])}, but "
                f"the data is {flow} now, {_of_size(size)}. Resume with the same data, or begin a new run"
            )
        self._loaded = dict(state)

    def _go_on(self, skip: int) -> None:
        """Begin to iterate at the position, and skip what was used after it."""
        self.index = self.resumed_at - skip
        if self._trail is not None:
            self._trail.start(self.index)
        self._iterator = iter(self.position)
        self._is_started = True
        for _ in range(skip):
            self._skip_one()

    def _skip_one(self) -> None:
        """Take a datapoint that has been used already."""
        try:
            next(self._iterator)
        except StopIteration:
            if not self.infinite:
                raise InputError(
                    f"{self.owner} cannot go on after {self.resumed_at} datapoints: the dataflow "
                    f"{type(self.flow).__name__} ended after {self.index}. Has the data changed?"
                ) from None
            self._first_of_next_pass()
        self.index += 1
        if self._trail is not None:
            self._trail.advance()

    def _first_of_next_pass(self) -> Any:
        if self.index == self._pass_start:
            raise self._is_empty() from None
        self._pass_start = self.index
        try:
            self._iterator = iter(self.position)
            return next(self._iterator)
        except StopIteration:
            one_shot = f": {self._one_shot()}" if isinstance(self.flow, Iterator) else ""
            raise InputError(
                f"{self.owner}: the dataflow {type(self.flow).__name__} delivered {self.index} datapoints, "
                f"and nothing when it was iterated again{one_shot}"
            ) from None
        except Exception as error:
            self._note(error)
            raise

    def _is_empty(self) -> InputError:
        return InputError(f"{self.owner}: there is no data: {why_empty(self.flow)}")

    def _one_shot(self) -> str:
        return f"{self.flow!r} is a one-shot iterator; give DataFromGenerator the function that makes it, or use a list"

    def _note(self, error: Exception) -> None:
        add_note(error, f"raised while {self.owner} took datapoint {self.index} from {type(self.flow).__name__}")


def _structure_of(flow: Iterable[Any]) -> str:
    """Return of which classes a dataflow is composed, such as ``"BatchData(DataFromList)"``.

    Two flows of which that differs cannot have a position in common.
    """
    kind = type(flow).__name__
    sources = flow.sources if isinstance(flow, DataFlow) else ()
    return f"{kind}({', '.join(map(_structure_of, sources))})" if sources else kind


def _of_size(size: int | None) -> str:
    return "of unknown length" if size is None else f"of length {size}"


class _NotStarted(Iterator[Any]):
    """What stands in place of the flow's iterator while the stream is not started."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __next__(self) -> Any:
        raise InputError(f"{self._owner} was asked for data outside of a training; its before_train starts it")
