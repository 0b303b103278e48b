"""Dropout of what goes into a cell, of what comes out, and of its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph import random
from tpk.layers.rnn_cell.base import argument_error, function_of, outermost_graph
from tpk.layers.rnn_cell.composition import CellWrapper
from tpk.layers.rnn_cell.lstm import LSTMStateTuple


def _all_but_memories(state: Any) -> Any:
    """What is dropped of a state by default: not the memory of an LSTM, which is to last (Gal and Ghahramani)."""
    return LSTMStateTuple(c=False, h=True) if isinstance(state, LSTMStateTuple) else True


class DropoutWrapper(CellWrapper):
    """A cell with dropout: in each step, random elements are zero, and the others are scaled by ``1 / keep_prob``.

    What is dropped depends on the seed of the graph, the name of the op with its tower, the global step and the step of
    the sequence, and so a training that is resumed drops the same; see `tpk.graph.random`. In inference, pass 1.

    With the control flow of TensorFlow 1, which is not the default, `dynamic_rnn` takes no dropout but a variational
    one.

    Args:
        cell: the cell to wrap.
        input_keep_prob: the fraction of inputs to keep, in (0, 1]; a number or a scalar tensor. 1 adds no ops.
        output_keep_prob: the same for outputs.
        state_keep_prob: the same for the next state, but for the memory of an `LSTMStateTuple`.
        variational_recurrent: whether all steps of the sequence, and all sequences of the batch, drop the same elements
            (Gal and Ghahramani, 2016, https://arxiv.org/abs/1512.05287).
        input_size: is not needed, as the inputs tell it.
        dtype: is not needed, as the inputs tell it.
        seed: on which the masks depend besides the others; another seed gives other masks.
        dropout_state_filter_visitor: says of which parts of the state elements are dropped: it takes the state, or a
            part, and returns a boolean for all of it, or a structure of booleans for its parts.

    Raises:
        ConfigError: if `cell` is no cell, or a fraction cannot be.

    Example:
        ```python
        keep = 0.5 if tpk.get_current_tower_context().is_training else 1.0
        cell = rnn_cell.DropoutWrapper(rnn_cell.LSTMCell(128), output_keep_prob=keep)
        ```
    """

    def __init__(
        self,
        cell: Any,
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: Any = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(cell)
        self._keep_probs = {
            what: self._keep_prob(f"{what}_keep_prob", value)
            for what, value in {"input": input_keep_prob, "output": output_keep_prob, "state": state_keep_prob}.items()
        }
        self._is_variational = variational_recurrent
        self._seed = seed
        visitor = function_of(self, "dropout_state_filter_visitor", dropout_state_filter_visitor)
        self._drops = visitor or _all_but_memories
        self._noise: dict[str, Any] = {}

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Compute outputs and next state with dropout; arguments are those of `RNNCell`."""
        outermost_graph(self)
        inputs = self._drop_all("input", inputs)
        outputs, state = self._cell(inputs, state, scope=scope)
        if self._keep_probs["state"] is not None:
            state = self._drop_of_state(state, "state")
        return self._drop_all("output", outputs), state

    def _keep_prob(self, what: str, value: Any) -> Any:
        """Return the fraction to keep, or None if it is known to be all."""
        static = tf.get_static_value(value) if tf.is_tensor(value) else value
        if static is None:
            return value
        number = np.asarray(static)
        if number.ndim or number.dtype.kind not in "iuf" or not 0 < number <= 1:
            remedy = "It is the fraction to keep, not the one to drop."
            raise argument_error(self, what, value, "a number in (0, 1], or a scalar tensor", remedy)
        return None if number == 1 else float(number)

    def _drop_all(self, what: str, values: Any) -> Any:
        if self._keep_probs[what] is None:
            return values
        flat = [self._drop(what, f"{what}_{index}", value) for index, value in enumerate(tf.nest.flatten(values))]
        return tf.nest.pack_sequence_as(values, flat)

    def _drop_of_state(self, state: Any, name: str) -> Any:
        """Drop elements of those parts of a state of which the visitor says so."""
        drops = self._drops(state)
        if isinstance(drops, bool):
            if not drops or isinstance(state, tf.TensorArray):
                return state
            if not tf.nest.is_nested(state):
                return self._drop("state", name, state)
            return _rebuilt(state, [self._drop_of_state(part, f"{name}_{key}") for key, part in _parts(state)])
        verdicts = [verdict for _, verdict in _parts(drops)] if tf.nest.is_nested(drops) else [drops]
        parts = _parts(state) if tf.nest.is_nested(state) else []
        if len(verdicts) != len(parts) or not all(isinstance(verdict, bool) for verdict in verdicts):
            raise ConfigError(
                f"DropoutWrapper: dropout_state_filter_visitor returned {drops!r} for the state {state!r}, expected a "
                "boolean, or as many booleans as the state has parts. Return True to drop elements of all of it."
            )
        return _rebuilt(
            state,
            [
                self._drop_of_state(part, f"{name}_{key}") if verdict else part
                for (key, part), verdict in zip(parts, verdicts, strict=True)
            ],
        )

    def _drop(self, what: str, name: str, value: Any) -> Any:
        keep_prob, value = self._keep_probs[what], tf.convert_to_tensor(value)
        if not self._is_variational:
            return random.dropout(value, 1 - keep_prob, seed=self._seed, name=f"{what}_dropout")
        if name not in self._noise:
            sizes = value.shape.as_list()[1:]
            if None in sizes:
                raise ConfigError(
                    f"DropoutWrapper(variational_recurrent=True): the shape of what is dropped is {value.shape}, and "
                    "one mask for all steps needs to know all but the batch. Set it with set_shape."
                )
            # Outside of the loop, so that all steps see the same.
            with tf.init_scope():
                self._noise[name] = random.uniform([1, *sizes], seed=self._seed, name=f"{what}_mask")
        with tf.name_scope(f"{what}_dropout"):
            kept = self._noise[name] < tf.cast(keep_prob, tf.float32)
            return tf.where(kept, value / tf.cast(keep_prob, value.dtype), tf.zeros([], value.dtype))


def _parts(structure: Any) -> list[tuple[Any, Any]]:
    """The parts of one level of a structure, with their keys, in the order of `tf.nest`."""
    if isinstance(structure, dict):
        return [(key, structure[key]) for key in sorted(structure)]
    return list(enumerate(structure))


def _rebuilt(structure: Any, parts: list[Any]) -> Any:
    """A structure like this one, of these parts."""
    if isinstance(structure, dict):
        return type(structure)(zip(sorted(structure), parts, strict=True))
    return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
