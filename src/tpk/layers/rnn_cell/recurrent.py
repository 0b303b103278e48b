"""The plain recurrent cell, and the gated recurrent unit (GRU)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_at_least, whole
from tpk.layers.layer_scope import ONES, ZEROS, Function
from tpk.layers.rnn_cell.base import RNNCell


class DenseCell(RNNCell, ABC):
    """A cell whose gates are dense layers of its state and its inputs, of shape [batch, features]."""

    def __init__(
        self,
        num_units: int,
        activation: Function | str | None = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(trainable, name, dtype, reuse)
        self.num_units: int = whole(num_units)
        check_at_least(self, 1, num_units=self.num_units)
        self._given_activation = activation
        self._activation: Function = tf.tanh

    @property
    def state_size(self) -> Any:
        """The number of units."""
        return self.num_units

    @property
    def output_size(self) -> int:
        """The number of units."""
        return self.num_units

    def build(self, inputs_shape: Any) -> None:
        """Check the inputs and the activation, then make the variables."""
        layer = self._opened_layer()
        layer.require_floating()
        layer.require_rank(["batch", "features"])
        if self._given_activation is not None:
            self._activation = layer.activation_of(self._given_activation) or tf.identity
        self.make_variables(layer.known_size(1, "features"))

    @abstractmethod
    def make_variables(self, features: int) -> None:
        """Make the variables for inputs with this number of features."""


class BasicRNNCell(DenseCell):
    """The plain recurrent cell: ``activation([inputs, state] @ kernel + bias)`` is both output and next state.

    Variables: ``kernel`` of shape [features + units, units], and ``bias`` of shape [units].

    Args:
        num_units: the number of outputs.
        activation: a function, or its name in `tf.nn`; None for the hyperbolic tangent.
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.
        name: the variable scope; None for ``basic_rnn_cell``, made unique.
        dtype: the dtype of the variables; None for the dtype of the inputs.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the cell.

    Example:
        ```python
        outputs, state = tf.compat.v1.nn.dynamic_rnn(rnn_cell.BasicRNNCell(64), x, dtype=tf.float32)
        ```
    """

    def make_variables(self, features: int) -> None:
        """Make ``kernel`` and ``bias``."""
        self._kernel = self.add_variable("kernel", [features + self.num_units, self.num_units])
        self._bias = self.add_variable("bias", [self.num_units], ZEROS)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs, which are the next state."""
        gate_inputs = tf.matmul(tf.concat([inputs, state], 1), self._kernel)
        outputs = self._activation(tf.nn.bias_add(gate_inputs, self._bias))
        return outputs, outputs


class GRUCell(DenseCell):
    """The gated recurrent unit (Cho et al., 2014, https://arxiv.org/abs/1406.1078).

    Variables: ``gates/kernel`` of shape [features + units, 2 * units] and ``gates/bias`` of shape [2 * units], for the
    reset and the update gate; ``candidate/kernel`` of shape [features + units, units] and ``candidate/bias`` of shape
    [units].

    Args:
        num_units: the number of outputs.
        activation: a function, or its name in `tf.nn`; None for the hyperbolic tangent.
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.
        kernel_initializer: an initializer of both kernels, or its name; None for the one of the enclosing variable
            scope, or else Glorot-uniform.
        bias_initializer: an initializer of both biases, or its name; None for ones for the gates, so that the state is
            neither reset nor updated much at first, and zeros for the candidate.
        name: the variable scope; None for ``gru_cell``, made unique.
        dtype: the dtype of the variables; None for the dtype of the inputs.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the cell.

    Example:
        ```python
        cell = rnn_cell.GRUCell(64)
        outputs, state = tf.compat.v1.nn.dynamic_rnn(cell, x, dtype=tf.float32)
        ```
    """

    def __init__(
        self,
        num_units: int,
        activation: Function | str | None = None,
        reuse: Any = None,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype, trainable)
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer

    def make_variables(self, features: int) -> None:
        """Make kernel and bias of the gates and of the candidate."""
        units, rows = self.num_units, features + self.num_units
        bias = self._bias_initializer
        self._gate_kernel = self.add_variable("gates/kernel", [rows, 2 * units], self._kernel_initializer)
        self._gate_bias = self.add_variable("gates/bias", [2 * units], ONES if bias is None else bias)
        self._candidate_kernel = self.add_variable("candidate/kernel", [rows, units], self._kernel_initializer)
        self._candidate_bias = self.add_variable("candidate/bias", [units], ZEROS if bias is None else bias)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs, which are the next state."""
        gates = tf.nn.bias_add(tf.matmul(tf.concat([inputs, state], 1), self._gate_kernel), self._gate_bias)
        reset, update = tf.split(tf.sigmoid(gates), 2, axis=1)
        candidate = tf.matmul(tf.concat([inputs, reset * state], 1), self._candidate_kernel)
        candidate = self._activation(tf.nn.bias_add(candidate, self._candidate_bias))
        outputs = update * state + (1 - update) * candidate
        return outputs, outputs
