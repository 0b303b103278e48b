"""`tf.nn.rnn_cell`: the cells of `tpk.layers.rnn_cell`, for `tf.nn.dynamic_rnn` and `static_rnn`."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf
from tensorflow.python.keras.layers.legacy_rnn import rnn_cell_impl

import tpk
from tpk.layers import rnn_cell
from tpk.layers.rnn_cell import *
from tpk.tf_internals import control_flow_contexts
from tpk_tensorflow1.missing import finder_in

__all__ = rnn_cell.__all__


class DropoutWrapper(rnn_cell.DropoutWrapper):
    """A cell with dropout; see `tpk.layers.rnn_cell.DropoutWrapper`.

    Outside of a tower, and in each step of a TensorFlow 1 control-flow loop, such as the loop of `tf.nn.dynamic_rnn` in
    a script, it uses TensorFlow's own random ops. There, a resumed training run drops different elements.
    """

    def _drop(self, what: str, name: str, value: Any) -> Any:
        in_tower = tpk.get_current_tower_context() is not None
        if self._is_variational and not in_tower and name not in self._noise:
            with tf.init_scope():
                self._noise[name] = tf.random.uniform([1, *value.shape[1:]], seed=self._seed, name=f"{what}_mask")
        if self._is_variational or (in_tower and not _in_loop()):
            return super()._drop(what, name, value)
        return tf.nn.dropout(value, rate=1 - self._keep_probs[what], seed=self._seed, name=f"{what}_dropout")


def _in_loop() -> bool:
    """Whether ops are being added to a TensorFlow 1 control-flow loop."""
    return any(each.IsWhileContext() for each in control_flow_contexts(tf.compat.v1.get_default_graph()))


_missing = finder_in("tf.nn.rnn_cell", __all__, rnn_cell_impl)


def __getattr__(name: str) -> Any:
    # Before TensorFlow 1.0, this module had all cells of `tf.contrib.rnn`.
    rnn = None if name.startswith("__") else importlib.import_module("tpk_tensorflow1.contrib.rnn")
    return getattr(rnn, name) if hasattr(rnn, name) else _missing(name)
