"""`tf.nn.rnn_cell`: the cells of `tpk.layers.rnn_cell`, which `tf.nn.dynamic_rnn` and `static_rnn` take."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.layers import rnn_cell
from tpk.layers.rnn_cell import (
    BasicLSTMCell,
    BasicRNNCell,
    DeviceWrapper,
    GRUCell,
    LSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
    ResidualWrapper,
    RNNCell,
)
from tpk.tf_internals import control_flow_context
from tpk_tensorflow1.missing import finder_in

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
]


class DropoutWrapper(rnn_cell.DropoutWrapper):
    """A cell with dropout; see `tpk.layers.rnn_cell.DropoutWrapper`.

    Within a loop with the control flow of TensorFlow 1, as that of `tf.nn.dynamic_rnn` in a script, each step of the
    sequence draws by TensorFlow's own random ops: a training that is resumed drops other elements there.
    """

    def _drop(self, what: str, name: str, value: Any) -> Any:
        if self._is_variational or not _in_loop():
            return super()._drop(what, name, value)
        return tf.nn.dropout(value, rate=1 - self._keep_probs[what], seed=self._seed, name=f"{what}_dropout")


def _in_loop() -> bool:
    """Tell whether ops are being added to a loop with the control flow of TensorFlow 1."""
    context = control_flow_context(tf.compat.v1.get_default_graph())
    while context is not None and not context.IsWhileContext():
        context = context.outer_context
    return context is not None


__getattr__ = finder_in("tf.nn.rnn_cell", __all__)
