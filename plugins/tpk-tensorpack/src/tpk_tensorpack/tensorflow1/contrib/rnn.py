"""What was `tf.contrib.rnn`: cells, and what runs them over sequences."""

from __future__ import annotations

import tensorflow as _tf

from tpk_tensorpack.tensorflow1.missing import finder_in
from tpk_tensorpack.tensorflow1.rnn_cell import (
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

static_rnn = _tf.compat.v1.nn.static_rnn
static_state_saving_rnn = _tf.compat.v1.nn.static_state_saving_rnn
static_bidirectional_rnn = _tf.compat.v1.nn.static_bidirectional_rnn

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
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
]

__getattr__ = finder_in("tf.contrib.rnn", __all__)
