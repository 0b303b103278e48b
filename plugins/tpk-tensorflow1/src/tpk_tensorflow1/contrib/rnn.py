"""`tf.contrib.rnn`: cells, and functions that run them over sequences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk_tensorflow1 import rnn_cell
from tpk_tensorflow1.missing import finder_in, own_names
from tpk_tensorflow1.rnn_cell import *

v1 = tf.compat.v1

static_rnn = v1.nn.static_rnn
static_state_saving_rnn = v1.nn.static_state_saving_rnn
static_bidirectional_rnn = v1.nn.static_bidirectional_rnn
LayerRNNCell = rnn_cell.RNNCell

Function = Callable[..., Any]


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    *,
    scope: Any = None,
    **options: Any,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Run layers of two cells each over sequences, forward and backward; the outputs of both are the next inputs.

    Args:
        cells_fw: the forward cell of each layer.
        cells_bw: the backward cell of each layer.
        inputs: a tensor of shape [batch, time, features], or [time, batch, features] if `time_major`.
        initial_states_fw: the initial state of each forward cell; by default zeros.
        initial_states_bw: the initial state of each backward cell.
        dtype: the dtype of the initial states.
        sequence_length: an integer tensor of shape [batch]; by default all steps.
        scope: the variable scope, by default ``stack_bidirectional_rnn``.
        options: the arguments `parallel_iterations`, `swap_memory` and `time_major` of
            `tf.nn.bidirectional_dynamic_rnn`.

    Returns:
        The outputs, the final states of the forward cells, and those of the backward cells.
    """
    none = [None] * len(cells_fw)
    layers = zip(cells_fw, cells_bw, initial_states_fw or none, initial_states_bw or none, strict=True)
    states = []
    with v1.variable_scope(scope or "stack_bidirectional_rnn"):
        for number, (forward, backward, *initial) in enumerate(layers):
            with v1.variable_scope(f"cell_{number}"):
                outputs, state = v1.nn.bidirectional_dynamic_rnn(
                    forward, backward, inputs, sequence_length, *initial, dtype, **options
                )
                inputs = tf.concat(outputs, 2)
            states.append(state)
    return inputs, *zip(*states, strict=True)


def transpose_batch_time(x: Any) -> Any:
    """Swap the first two axes; keep a tensor of lower or unknown rank unchanged."""
    return x if x.shape.rank is None or x.shape.rank < 2 else tf.einsum("ij...->ji...", x)


class LSTMBlockCell(rnn_cell.LSTMCell):
    """An `LSTMCell` with the arguments of `tf.contrib.rnn.LSTMBlockCell`. The variables are the same.

    Args:
        num_units: the size of the cell state.
        forget_bias: a number that is added to the bias of the forget gate.
        cell_clip: the limit for absolute values in the cell state; None for no limit.
        use_peephole: whether the gates depend on the cell state.
        options: the arguments `dtype`, `reuse` and `name` of `LSTMCell`.
    """

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, cell_clip: Any = None, use_peephole: Any = False, **options: Any
    ) -> None:
        super().__init__(
            num_units, use_peephole, cell_clip, forget_bias=forget_bias, **{"name": "lstm_cell", **options}
        )


class LSTMBlockFusedCell:
    """An `LSTMBlockCell` that runs over sequences of shape [time, batch, features].

    It takes the arguments of the cell, and returns the outputs and the final state.
    """

    def __init__(self, *args: Any, name: str = "lstm_fused_cell", **options: Any) -> None:
        self._cell = LSTMBlockCell(*args, name=name, **options)

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None
    ) -> tuple[Any, Any]:
        # The variables are in the current scope, not in the one of `dynamic_rnn`.
        self._cell(inputs[0], self._cell.zero_state(tf.shape(inputs)[1], inputs.dtype))
        outputs, state = v1.nn.dynamic_rnn(self._cell, inputs, sequence_length, initial_state, dtype, time_major=True)
        return outputs, state


class TimeReversedFusedRNN:
    """A fused cell that runs backward over the sequences."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __call__(self, inputs: Any, *args: Any, sequence_length: Any = None, **options: Any) -> tuple[Any, Any]:
        lengths = tf.fill(tf.shape(inputs)[1:2], tf.shape(inputs)[0]) if sequence_length is None else sequence_length
        reverse = functools.partial(tf.reverse_sequence, seq_lengths=lengths, seq_axis=0, batch_axis=1)
        outputs, state = self._cell(reverse(inputs), *args, sequence_length=sequence_length, **options)
        return reverse(outputs), state


class _Cell(rnn_cell.RNNCell):
    """A cell with the state of an LSTM cell."""

    def __init__(self, num_units: int, reuse: Any = None, name: str | None = None) -> None:
        super().__init__(reuse=reuse, name=name)
        self._num_units = num_units

    @property
    def state_size(self) -> Any:
        """The sizes of the cell state and of the outputs."""
        return rnn_cell.LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> Any:
        """The size of the outputs."""
        return self._num_units


class LayerNormBasicLSTMCell(_Cell):
    """An LSTM cell with layer normalization (Ba et al., https://arxiv.org/abs/1607.06450) and recurrent dropout.

    Args:
        num_units: the number of outputs.
        forget_bias: a number that is added to the input of the forget gate.
        input_size: not used.
        activation: a function.
        layer_norm: whether to normalize; otherwise there is a bias.
        norm_gain: the initial value of ``gamma`` in each normalization.
        norm_shift: the initial value of ``beta``.
        dropout_keep_prob: a number or a scalar tensor: the fraction of new values to keep in the cell state (Semeniuta
            et al., https://arxiv.org/abs/1603.05118).
        dropout_prob_seed: the seed of the dropout.
        reuse: whether to reuse existing variables.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: Any = None,
        activation: Function = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(num_units, reuse)
        self._forget_bias = forget_bias
        self._activation = activation
        self._layer_norm = layer_norm
        self._gamma, self._beta = v1.constant_initializer(norm_gain), v1.constant_initializer(norm_shift)
        self._keep_prob = dropout_keep_prob
        self._seed = dropout_prob_seed

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs and the next state."""
        memory, outputs = state
        gates = _linear([inputs, outputs], 4 * self._num_units, False)
        if not self._layer_norm:
            gates += v1.get_variable("bias", [4 * self._num_units], inputs.dtype)
        names = ("input", "transform", "forget", "output")
        parts = zip(tf.split(gates, 4, axis=1), names, strict=True)
        new, candidate, forget, out = [self._normalized(part, name) for part, name in parts]
        candidate = self._activation(candidate)
        if tf.is_tensor(self._keep_prob) or self._keep_prob < 1:
            candidate = tf.nn.dropout(candidate, rate=1 - self._keep_prob, seed=self._seed)
        memory = memory * tf.sigmoid(forget + self._forget_bias) + tf.sigmoid(new) * candidate
        memory = self._normalized(memory, "state")
        outputs = self._activation(memory) * tf.sigmoid(out)
        return outputs, rnn_cell.LSTMStateTuple(memory, outputs)

    def _normalized(self, values: Any, scope: str) -> Any:
        if not self._layer_norm:
            return values
        with v1.variable_scope(scope):
            gamma = v1.get_variable("gamma", [self._num_units], values.dtype, self._gamma)
            beta = v1.get_variable("beta", [self._num_units], values.dtype, self._beta)
        mean, variance = tf.nn.moments(values, [1], keepdims=True)
        return tf.nn.batch_normalization(values, mean, variance, beta, gamma, 1e-12)


class NASCell(_Cell):
    """The cell that Zoph and Le found by search, https://arxiv.org/abs/1611.01578.

    Args:
        num_units: the size of the cell state.
        reuse: whether to reuse existing variables.
        name: the variable scope.
    """

    def build(self, inputs_shape: Any) -> None:
        """Create the variables."""
        columns = 8 * self._num_units
        self._recurrent_kernel = self.add_variable("recurrent_kernel", [self._num_units, columns])
        self._kernel = self.add_variable("kernel", [inputs_shape[-1], columns])

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs and the next state."""
        memory, outputs = state
        x = tf.split(tf.matmul(inputs, self._kernel), 8, axis=1)
        h = tf.split(tf.matmul(outputs, self._recurrent_kernel), 8, axis=1)
        # The two inputs of each node of the tree are the outputs of the nodes below.
        first = tf.tanh(tf.sigmoid(x[0] + h[0]) * tf.nn.relu(x[1] + h[1]))
        second = tf.tanh(tf.sigmoid(x[2] + h[2]) + tf.nn.relu(x[3] * h[3]))
        third = tf.tanh(tf.tanh(x[4] + h[4]) * tf.sigmoid(x[5] + h[5]))
        fourth = tf.sigmoid(tf.tanh(x[6] + h[6]) + tf.sigmoid(x[7] + h[7]))
        memory = tf.tanh(first + memory) * second
        outputs = tf.tanh(memory * tf.tanh(third + fourth))
        return outputs, rnn_cell.LSTMStateTuple(memory, outputs)


class _Wrapper(rnn_cell.RNNCell):
    """A cell around another one, with its sizes."""

    def __init__(self, cell: Any, reuse: Any = None) -> None:
        super().__init__(reuse=reuse)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        """The size of the state of the wrapped cell."""
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        """The size of the outputs of the wrapped cell."""
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the initial state of the wrapped cell."""
        return self._cell.zero_state(batch_size, dtype)


class OutputProjectionWrapper(_Wrapper):
    """A cell whose outputs are projected by a dense layer.

    Args:
        cell: the cell.
        output_size: the size of the projected outputs.
        activation: a function of the projected outputs.
        reuse: whether to reuse existing variables.
    """

    def __init__(self, cell: Any, output_size: int, activation: Function | None = None, reuse: Any = None) -> None:
        super().__init__(cell, reuse)
        self._output_size = output_size
        self._activation = activation or tf.identity

    @property
    def output_size(self) -> Any:
        """The size of the projected outputs."""
        return self._output_size

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the projected outputs, and the next state."""
        outputs, state = self._cell(inputs, state)
        return self._activation(_linear(outputs, self._output_size, True)), state


class EmbeddingWrapper(_Wrapper):
    """A cell whose inputs are integers, of which it looks up embeddings.

    Args:
        cell: the cell.
        embedding_classes: the number of embeddings.
        embedding_size: their size.
        initializer: their initializer; by default the one of the variable scope, or uniform with a variance of 1.
        reuse: whether to reuse existing variables.
    """

    def __init__(
        self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None, reuse: Any = None
    ) -> None:
        super().__init__(cell, reuse)
        self._shape = [embedding_classes, embedding_size]
        self._initializer = initializer

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs of the cell for the embeddings of integers of shape [batch]."""
        uniform = v1.random_uniform_initializer(-(3**0.5), 3**0.5)
        initializer = self._initializer or v1.get_variable_scope().initializer or uniform
        embeddings = v1.get_variable("embedding", self._shape, tf.nest.flatten(state)[0].dtype, initializer)
        return self._cell(tf.nn.embedding_lookup(embeddings, tf.reshape(inputs, [-1])), state)


class _Linear:
    """The product of one or several tensors of shape [batch, size] with a kernel, plus a bias.

    The variables ``kernel`` and ``bias`` are in the variable scope in which it is made.
    """

    def __init__(
        self,
        args: Any,
        output_size: int,
        build_bias: bool,
        bias_initializer: Any = None,
        kernel_initializer: Any = None,
    ) -> None:
        inputs = args if isinstance(args, list | tuple) else [args]
        shape = [sum(each.shape[1] for each in inputs), output_size]
        self._kernel = v1.get_variable("kernel", shape, inputs[0].dtype, kernel_initializer)
        self._bias = None
        if build_bias:
            initializer = bias_initializer or v1.zeros_initializer()
            self._bias = v1.get_variable("bias", [output_size], inputs[0].dtype, initializer)

    def __call__(self, args: Any) -> Any:
        outputs = tf.matmul(tf.concat(args, 1) if isinstance(args, list | tuple) else args, self._kernel)
        return outputs if self._bias is None else tf.nn.bias_add(outputs, self._bias)


def _linear(
    args: Any, output_size: int, bias: bool, bias_initializer: Any = None, kernel_initializer: Any = None
) -> Any:
    """Return the product of one or several tensors with a kernel, plus a bias; see `_Linear`."""
    return _Linear(args, output_size, bias, bias_initializer, kernel_initializer)(args)


__all__ = sorted({*rnn_cell.__all__, *own_names(__name__)})

__getattr__ = finder_in("tf.contrib.rnn", __all__)
