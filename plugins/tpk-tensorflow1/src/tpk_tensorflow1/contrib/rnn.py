"""`tf.contrib.rnn`: cells, and functions that run them over sequences."""

from __future__ import annotations

from typing import Any

import tensorflow as _tf

from tpk_tensorflow1 import rnn_cell
from tpk_tensorflow1.missing import finder_in
from tpk_tensorflow1.rnn_cell import *

static_rnn = _tf.compat.v1.nn.static_rnn
static_state_saving_rnn = _tf.compat.v1.nn.static_state_saving_rnn
static_bidirectional_rnn = _tf.compat.v1.nn.static_bidirectional_rnn

__all__ = [
    *rnn_cell.__all__,
    "LSTMBlockCell",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
]


class LSTMBlockCell(rnn_cell.LSTMCell):
    """An `LSTMCell` with the arguments of `tf.contrib.rnn.LSTMBlockCell`. The variables are the same.

    Args:
        num_units: the size of the cell state.
        forget_bias: a number that is added to the bias of the forget gate.
        cell_clip: the limit for absolute values in the cell state; None for no limit.
        use_peephole: whether the gates depend on the cell state.
        dtype: the dtype of the variables; None for the dtype of the inputs.
        reuse: whether to reuse existing variables.
        name: the variable scope.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: Any = None,
        name: str | None = "lstm_cell",
    ) -> None:
        super().__init__(
            num_units, use_peephole, cell_clip, forget_bias=forget_bias, reuse=reuse, name=name, dtype=dtype
        )


__getattr__ = finder_in("tf.contrib.rnn", __all__)
