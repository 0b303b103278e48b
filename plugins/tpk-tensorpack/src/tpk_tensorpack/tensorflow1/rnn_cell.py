"""`tf.nn.rnn_cell`: the cells of `tpk.layers.rnn_cell`, which `tf.nn.dynamic_rnn` and `static_rnn` take."""

from __future__ import annotations

from tpk.layers.rnn_cell import (
    BasicLSTMCell,
    BasicRNNCell,
    DeviceWrapper,
    DropoutWrapper,
    GRUCell,
    LSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
    ResidualWrapper,
    RNNCell,
)
from tpk_tensorpack.tensorflow1.missing import finder_in

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

__getattr__ = finder_in("tf.nn.rnn_cell", __all__)
