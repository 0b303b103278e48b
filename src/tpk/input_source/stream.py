"""The datapoints of a dataflow as an input source consumes them: pass after pass, checked and counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tpk.dataflow import check_iterable, reset_state
from tpk.errors import InputError, add_note
from tpk.input_source.datapoint import Array, DatapointConverter


class DatapointStream:
    """An iterator over the arrays of a flow's datapoints, which can be started again.

    Args:
        flow: any iterable of datapoints.
        infinite: whether another pass over the flow follows when one is over.
        owner: the name of the input source, for messages.

    Attributes:
        flow: the dataflow.
        index: how many datapoints have been delivered since the last start.

    Raises:
        ConfigError: `flow` cannot be iterated.
    """

    def __init__(self, flow: Iterable[Any], *, infinite: bool, owner: str) -> None:
        check_iterable(flow, owner)
        self.flow = flow
        self.infinite = infinite
        self.owner = owner
        self.index = 0
        self._pass_start = 0
        self._flow_is_ready = False
        self._iterator: Iterator[Any] = _NotStarted(owner)

    def bind(self, signature: tuple[Any, ...]) -> None:
        """Say what the datapoints must fit."""
        self._convert = DatapointConverter(signature, self.owner)

    def start(self) -> None:
        """Start from the first datapoint of the flow.

        Raises:
            InputError: the flow is a one-shot iterator of which something has been taken already.
        """
        self.close()
        if not self._flow_is_ready:
            reset_state(self.flow)
            self._flow_is_ready = True
        iterator = iter(self.flow)
        if iterator is self.flow and self.index:
            raise InputError(f"{self.owner} cannot start from the beginning again: {self._one_shot()}")
        self._iterator = iterator
        self.index = self._pass_start = 0

    def __iter__(self) -> DatapointStream:
        return self

    def __next__(self) -> list[Array]:
        try:
            datapoint = next(self._iterator)
        except StopIteration:
            if not self.infinite:
                raise
            datapoint = self._first_of_next_pass()
        except Exception as error:
            self._note(error)
            raise
        index = self.index
        self.index = index + 1
        return self._convert(datapoint, index)

    def close(self) -> None:
        """Let go of the flow's iterator, and of the files and workers behind it."""
        iterator, self._iterator = self._iterator, _NotStarted(self.owner)
        close = getattr(iterator, "close", None)
        # An iterator that the user made is the user's to close.
        if close is not None and iterator is not self.flow:
            close()

    def _first_of_next_pass(self) -> Any:
        if self.index == self._pass_start:
            raise InputError(f"{self.owner}: the dataflow {type(self.flow).__name__} has no datapoint") from None
        self._pass_start = self.index
        try:
            self._iterator = iter(self.flow)
            return next(self._iterator)
        except StopIteration:
            one_shot = f": {self._one_shot()}" if self._iterator is self.flow else ""
            raise InputError(
                f"{self.owner}: the dataflow {type(self.flow).__name__} delivered {self.index} datapoints, "
                f"and nothing when it was iterated again{one_shot}"
            ) from None
        except Exception as error:
            self._note(error)
            raise

    def _one_shot(self) -> str:
        return f"{self.flow!r} is a one-shot iterator; give DataFromGenerator the function that makes it, or use a list"

    def _note(self, error: Exception) -> None:
        add_note(error, f"raised while {self.owner} took datapoint {self.index} from {type(self.flow).__name__}")


class _NotStarted(Iterator[Any]):
    """What stands in place of the flow's iterator while the stream is not started."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __next__(self) -> Any:
        raise InputError(f"{self._owner} was asked for data outside of a training; its before_train starts it")
