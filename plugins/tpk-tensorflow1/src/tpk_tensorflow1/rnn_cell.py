"""`tf.nn.rnn_cell`: the cells of `tpk.layers.rnn_cell`, for `tf.nn.dynamic_rnn` and `static_rnn`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.layers import rnn_cell
from tpk.layers.rnn_cell import *
from tpk.tf_internals import control_flow_contexts
from tpk_tensorflow1.missing import finder_in

__all__ = rnn_cell.__all__


class DropoutWrapper(rnn_cell.DropoutWrapper):
    """A cell with dropout; see `tpk.layers.rnn_cell.DropoutWrapper`.

    In a TensorFlow 1 control-flow loop, such as the loop of `tf.nn.dynamic_rnn` in a script, each step of the sequence
    uses TensorFlow's own random ops. There, a resumed training run drops different elements.
    """

    def _drop(self, what: str, name: str, value: Any) -> Any:
        if self._is_variational or not _in_loop():
            return super()._drop(what, name, value)
        return tf.nn.dropout(value, rate=1 - self._keep_probs[what], seed=self._seed, name=f"{what}_dropout")


def _in_loop() -> bool:
    """Whether ops are being added to a TensorFlow 1 control-flow loop."""
    return any(each.IsWhileContext() for each in control_flow_contexts(tf.compat.v1.get_default_graph()))


__getattr__ = finder_in("tf.nn.rnn_cell", __all__)
