"""The base of all input sources: what it owes, when it is called, and the checks that all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpk.errors import InputError
from tpk.graph.signature import check_signature
from tpk.plugin.callback import Callback


class InputSource(ABC):
    """Something that gives a graph the tensors of one datapoint for each tower in each step.

    In the order in which it is called:

    1. `setup(signature)`, inside the graph, once.
    2. `get_input_tensors()`, inside the graph, once for each tower: each call gives further tensors, and in a
       step each tower gets a datapoint of its own.
    3. The hooks of the callbacks that `setup` returned; `before_train` starts the data from the beginning.
    4. `reset_state()`, any time between two steps: start again from the beginning.

    Which tower gets which of a step's datapoints is settled only if each call of `get_input_tensors` stands
    under `tf.control_dependencies` on the tensors of the towers before; towers that run by themselves must not
    have that.

    A subclass implements `_setup`, `_get_input_tensors` and, if it can start again, `_reset_state`; it may
    override `size`, `state_dict` and `load_state_dict`. Its callbacks derive from `InputCallback`.

    Attributes:
        signature: the `tf.TensorSpec`s given to `setup`; empty before.
    """

    signature: tuple[Any, ...] = ()

    def setup(self, signature: Sequence[Any]) -> list[Callback]:
        """Build what feeds the graph, in the default graph.

        Args:
            signature: a `tf.TensorSpec` with a name for each input of the model, in their order.

        Returns:
            The callbacks that a trainer or an `InferenceRunner` must run along.

        Raises:
            InputError: the signature is not of that kind, or the source has been set up before.
        """
        if self.signature:
            raise InputError(
                f"this {type(self).__name__} has been set up already; a source serves one training or "
                "inference, so make another one"
            )
        self.signature = check_signature(signature)
        return self._setup()

    def get_input_tensors(self) -> list[Any]:
        """Return the tensors of one more tower, in the order of the signature.

        Raises:
            InputError: `setup` has not been called.
        """
        if not self.signature:
            raise InputError(f"{type(self).__name__}.get_input_tensors() was called before setup()")
        return self._get_input_tensors()

    def reset_state(self) -> None:
        """Start the data from the beginning."""
        self._reset_state()

    @property
    def size(self) -> int | None:
        """How many datapoints one pass over the data delivers, or None if that is unknown."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data as plain JSON data; empty if the source keeps none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned, before the training starts.

        Raises:
            InputError: there is a state, and this source keeps none.
        """
        if state:
            raise InputError(f"{type(self).__name__} keeps no position in its data, so it cannot take one back")

    @abstractmethod
    def _setup(self) -> list[Callback]:
        """Do what `setup` promises; `self.signature` has been checked and set."""

    @abstractmethod
    def _get_input_tensors(self) -> list[Any]:
        """Do what `get_input_tensors` promises, after `setup`."""

    def _reset_state(self) -> None:  # noqa: B027 - tensors come anew in each step
        """Do what `reset_state` promises, if the data has a beginning."""


class InputCallback(Callback):
    """Base of the callbacks of input sources, which run in every process.

    One that defines ``translate_error(error) -> BaseException | None`` is asked when a step has failed: if
    the error is only how a failure of the data reached the graph, it returns that failure, which is then
    raised in its place.
    """

    chief_only = False


def flow_size(flow: Iterable[Any]) -> int | None:
    """Return the length of a dataflow, or None where it has or knows none."""
    try:
        return len(flow)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None
