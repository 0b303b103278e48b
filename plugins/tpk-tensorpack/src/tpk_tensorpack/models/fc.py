"""Fully connected layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk import layers
from tpk_tensorpack.models.common import ZEROS, with_variables
from tpk_tensorpack.models.conv2d import NAMES, variables_of
from tpk_tensorpack.models.registry import layer_register
from tpk_tensorpack.models.tflayer import convert_to_tflayer_args, rename_get_variable

__all__ = ["FullyConnected"]

v1 = tf.compat.v1

Function = Callable[[Any], Any]


def batch_flatten(x: Any) -> Any:
    """Flatten all dimensions of a tensor except the first."""
    shape = x.shape.as_list()[1:]
    if None in shape:
        return tf.reshape(x, tf.stack([tf.shape(x)[0], -1]))
    size = 1
    for dimension in shape:
        size *= dimension
    return tf.reshape(x, [-1, size])


@layer_register(log_shape=True)
@convert_to_tflayer_args(["units"], {"out_dim": "units"})
def FullyConnected(
    inputs: Any,
    units: int,
    activation: Function | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = ZEROS,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    activity_regularizer: Function | None = None,
) -> Any:
    """Multiply by a matrix, like `tf.layers.dense`, after flattening all dimensions except the first.

    Variables: ``W`` and, with `use_bias`, ``b``.

    Args:
        inputs: a tensor of at least two dimensions, with known sizes except for the first.
        units: the number of outputs per example.
        activation: a function applied to the outputs.
        use_bias: whether to add a bias.
        kernel_initializer: by default an untruncated normal distribution with variance 2 / fan-in.
        bias_initializer: by default zeros.
        kernel_regularizer: maps ``W`` to a loss.
        bias_regularizer: maps ``b`` to a loss.
        activity_regularizer: maps the outputs to a loss.

    Returns:
        A tensor of shape [batch, units], named ``output``.
    """
    scope = v1.get_variable_scope()
    with rename_get_variable(NAMES):
        outputs = layers.dense(
            batch_flatten(inputs),
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer
            or v1.variance_scaling_initializer(2.0, distribution="untruncated_normal"),
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            name=v1.get_variable_scope(),
        )
    return with_variables(tf.identity(outputs, name="output"), **variables_of(scope, use_bias))
