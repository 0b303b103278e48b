"""Fully connected layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpk import layers
from tpk_tensorpack.models.common import ZEROS, layer_with_weights
from tpk_tensorpack.models.registry import layer_register
from tpk_tensorpack.models.tflayer import convert_to_tflayer_args

__all__ = ["FullyConnected"]

Function = Callable[[Any], Any]


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
    inputs = layers.flatten(inputs)
    # All parameters belong to the layer.
    return layer_with_weights(layers.dense, **locals())
