"""Long short-term memory (LSTM) cells and their state."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tpk.argument_checks import check_at_least, check_positive, given
from tpk.layers.layer_scope import ZEROS, Function
from tpk.layers.rnn_cell.base import argument_error
from tpk.layers.rnn_cell.recurrent import DenseCell


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM cell, or its size.

    Attributes:
        c: the memory.
        h: the outputs.
    """

    c: Any
    h: Any

    @property
    def dtype(self) -> Any:
        """The dtype of both."""
        return self.c.dtype


class LSTMCell(DenseCell):
    """An LSTM cell with peepholes, clipping and a projection (Sak et al., 2014, https://arxiv.org/abs/1402.1128).

    Variables: ``kernel`` of shape [features + outputs, 4 * units] and ``bias`` of shape [4 * units], for input gate,
    candidate, forget gate and output gate, in this order; with peepholes ``w_f_diag``, ``w_i_diag`` and ``w_o_diag`` of
    shape [units]; with a projection ``projection/kernel`` of shape [units, num_proj].

    Args:
        num_units: the size of the memory.
        use_peepholes: whether the gates depend on the memory.
        cell_clip: the largest absolute value in the memory; None for no limit.
        initializer: an initializer of kernels and peepholes, or its name; None for the one of the enclosing variable
            scope, or else Glorot-uniform.
        num_proj: the number of outputs to which the units are projected; None for no projection.
        proj_clip: the largest absolute value of a projected output; None for no limit.
        num_unit_shards: must be None; use a partitioner of the enclosing variable scope to divide variables.
        num_proj_shards: must be None; see `num_unit_shards`.
        forget_bias: added to the bias of the forget gate, so that little is forgotten at first (Jozefowicz et al.,
            2015, https://proceedings.mlr.press/v37/jozefowicz15.html).
        state_is_tuple: whether the state is an `LSTMStateTuple`; otherwise it is one tensor that concatenates both.
        activation: a function, or its name in `tf.nn`; None for the hyperbolic tangent.
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.
        name: the variable scope; None for ``lstm_cell``, made unique.
        dtype: the dtype of the variables; None for the dtype of the inputs.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.

    Raises:
        ConfigError: if an argument, the state, or the shape or dtype of the inputs, is invalid; it names the cell.

    Example:
        ```python
        cell = rnn_cell.LSTMCell(1024, use_peepholes=True, num_proj=256)
        outputs, state = tf.compat.v1.nn.dynamic_rnn(cell, x, dtype=tf.float32)  # [batch, time, 256]
        ```
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: object = None,
        num_proj_shards: object = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Function | str | None = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype, trainable)
        for what, shards in {"num_unit_shards": num_unit_shards, "num_proj_shards": num_proj_shards}.items():
            if shards is not None:
                remedy = "Call the cell in a variable scope with a partitioner instead."
                raise argument_error(self, what, shards, "None, as it is not supported", remedy)
        check_at_least(self, 1, **given(num_proj=num_proj))
        check_positive(self, **given(cell_clip=cell_clip, proj_clip=proj_clip))
        self._use_peepholes = use_peepholes
        self._cell_clip = cell_clip
        self._initializer = initializer
        self._num_proj = num_proj
        self._proj_clip = proj_clip
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple

    @property
    def state_size(self) -> Any:
        """The sizes of memory and outputs, an `LSTMStateTuple`; their sum if the state is one tensor."""
        sizes = LSTMStateTuple(self.num_units, self.output_size)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        """The number of projected outputs, or of units."""
        return self._num_proj or self.num_units

    def make_variables(self, features: int) -> None:
        """Make ``kernel`` and ``bias``, and the variables of the peepholes and the projection."""
        units = self.num_units
        self._kernel = self.add_variable("kernel", [features + self.output_size, 4 * units], self._initializer)
        self._bias = self.add_variable("bias", [4 * units], ZEROS)
        if self._use_peepholes:
            self._forget_peephole, self._new_peephole, self._out_peephole = (
                self.add_variable(f"w_{gate}_diag", [units], self._initializer) for gate in "fio"
            )
        if self._num_proj is not None:
            self._projection = self.add_variable("projection/kernel", [units, self._num_proj], self._initializer)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs and the next state."""
        memory, outputs = self._unpack(state)
        gates = tf.nn.bias_add(tf.matmul(tf.concat([inputs, outputs], 1), self._kernel), self._bias)
        new, candidate, forget, out = tf.split(gates, 4, axis=1)
        forget += self._forget_bias
        if self._use_peepholes:
            forget, new = forget + self._forget_peephole * memory, new + self._new_peephole * memory
        memory = tf.sigmoid(forget) * memory + tf.sigmoid(new) * self._activation(candidate)
        if self._cell_clip is not None:
            memory = tf.clip_by_value(memory, -self._cell_clip, self._cell_clip)
        if self._use_peepholes:
            out += self._out_peephole * memory
        outputs = tf.sigmoid(out) * self._activation(memory)
        if self._num_proj is not None:
            outputs = tf.matmul(outputs, self._projection)
            if self._proj_clip is not None:
                outputs = tf.clip_by_value(outputs, -self._proj_clip, self._proj_clip)
        return outputs, LSTMStateTuple(memory, outputs) if self._state_is_tuple else tf.concat([memory, outputs], 1)

    def _unpack(self, state: Any) -> tuple[Any, Any]:
        if not self._state_is_tuple:
            memory, outputs = tf.split(state, [self.num_units, self.output_size], axis=1)
            return memory, outputs
        if not isinstance(state, tuple | list) or len(state) != 2:
            expected = "an LSTMStateTuple, or a pair of memory and outputs"
            remedy = "Start from `cell.zero_state(batch_size, dtype)`."
            raise self._opened_layer().error("the state", state, expected, remedy)
        return state[0], state[1]


class BasicLSTMCell(LSTMCell):
    """A plain LSTM cell (Zaremba et al., 2014, https://arxiv.org/abs/1409.2329): an `LSTMCell` with fewer options.

    See `LSTMCell` for the arguments and variables; the default name is ``basic_lstm_cell``.

    Example:
        ```python
        outputs, state = tf.compat.v1.nn.dynamic_rnn(rnn_cell.BasicLSTMCell(64), x, dtype=tf.float32)
        last_outputs = state.h
        ```
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Function | str | None = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(
            num_units,
            forget_bias=forget_bias,
            state_is_tuple=state_is_tuple,
            activation=activation,
            reuse=reuse,
            name=name,
            dtype=dtype,
            trainable=trainable,
        )
