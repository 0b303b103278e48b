"""Dropout of the inputs, the outputs and the state of a cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph import random
from tpk.layers.rnn_cell.base import argument_error, outermost_graph
from tpk.layers.rnn_cell.composition import CellWrapper
from tpk.layers.rnn_cell.lstm import LSTMStateTuple


def _all_but_memories(state: Any) -> Any:
    """Exclude the memory of an LSTM, which is meant to last (Gal and Ghahramani)."""
    return LSTMStateTuple(c=False, h=True) if isinstance(state, LSTMStateTuple) else True


class DropoutWrapper(CellWrapper):
    """A cell with dropout: each step sets random elements to zero, and scales the others by ``1 / keep_prob``.

    The mask depends on the seed of the graph, the name of the op with its tower, the global step and the step of the
    sequence, so a resumed training drops the same elements; see `tpk.graph.random`. In inference, pass 1.

    With the control flow of TensorFlow 1, which is not the default, `dynamic_rnn` supports variational dropout only.

    Args:
        cell: the cell to wrap.
        input_keep_prob: the fraction of inputs to keep, in (0, 1]; a number or a scalar tensor. 1 adds no ops.
        output_keep_prob: the same for outputs.
        state_keep_prob: the same for the next state, except the memory of an `LSTMStateTuple`.
        variational_recurrent: whether to drop the same elements in all steps of the sequence and all sequences of the
            batch (Gal and Ghahramani, 2016, https://arxiv.org/abs/1512.05287).
        input_size: not needed; the inputs have it.
        dtype: not needed; the inputs have it.
        seed: the op-level seed; another seed gives other masks.
        dropout_state_filter_visitor: selects the parts of the state to drop from: takes the state, or a part of it, and
            returns a boolean for all of it, or a structure of booleans for its parts.

    Raises:
        ConfigError: if `cell` is not a cell, or a fraction is invalid.

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
        self._filter_state = dropout_state_filter_visitor or _all_but_memories
        self._noise: dict[str, Any] = {}

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Compute outputs and next state with dropout; see `RNNCell` for the arguments."""
        outermost_graph(self)
        inputs = self._drop_all("input", inputs)
        outputs, state = self._cell(inputs, state, scope=scope)
        if self._keep_probs["state"] is not None:
            state = self._drop_all("state", state, self._dropped_tensors(state))
        return self._drop_all("output", outputs), state

    def _keep_prob(self, what: str, value: Any) -> Any:
        """Return the fraction to keep, or None if it is known to be 1."""
        static = tf.get_static_value(value) if tf.is_tensor(value) else value
        if static is None:
            return value
        number = np.asarray(static)
        if number.ndim or number.dtype.kind not in "iuf" or not 0 < number <= 1:
            remedy = "It is the fraction to keep, not the one to drop."
            raise argument_error(self, what, value, "a number in (0, 1], or a scalar tensor", remedy)
        return None if number == 1 else float(number)

    def _drop_all(self, what: str, values: Any, chosen: list[bool] | None = None) -> Any:
        """Drop elements of all tensors in a structure, or of the chosen ones."""
        if self._keep_probs[what] is None:
            return values
        flat = tf.nest.flatten(values)
        dropped = [
            self._drop(what, f"{what}_{index}", value) if chosen is None or chosen[index] else value
            for index, value in enumerate(flat)
        ]
        return tf.nest.pack_sequence_as(values, dropped)

    def _dropped_tensors(self, state: Any) -> list[bool]:
        """For each tensor of a state, return whether to drop elements of it."""
        answer = self._filter_state(state)
        if isinstance(answer, bool) and not tf.nest.is_nested(state):
            return [answer and not isinstance(state, tf.TensorArray)]
        parts = _parts(state) if tf.nest.is_nested(state) else []
        answers = [answer] * len(parts) if isinstance(answer, bool) else _parts(answer)
        if len(answers) != len(parts) or not all(isinstance(each, bool) for each in answers):
            raise ConfigError(
                f"DropoutWrapper: dropout_state_filter_visitor returned {answer!r} for the state {state!r}, expected a "
                "boolean, or as many booleans as the state has parts. Return True to drop elements of all of it."
            )
        dropped: list[bool] = []
        for part, wanted in zip(parts, answers, strict=True):
            dropped += self._dropped_tensors(part) if wanted else [False] * len(tf.nest.flatten(part))
        return dropped

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
            # Outside of the loop, so that all steps use the same noise.
            with tf.init_scope():
                self._noise[name] = random.uniform([1, *sizes], seed=self._seed, name=f"{what}_mask")
        with tf.name_scope(f"{what}_dropout"):
            kept = self._noise[name] < tf.cast(keep_prob, tf.float32)
            return tf.where(kept, value / tf.cast(keep_prob, value.dtype), tf.zeros([], value.dtype))


def _parts(structure: Any) -> list[Any]:
    """The parts of one level of a structure, in the order of `tf.nest`."""
    if isinstance(structure, dict):
        return [structure[key] for key in sorted(structure)]
    return list(structure) if tf.nest.is_nested(structure) else [structure]
