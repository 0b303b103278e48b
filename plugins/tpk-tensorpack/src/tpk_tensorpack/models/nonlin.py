"""Nonlinearities."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk import layers
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.models.batch_norm import BatchNorm
from tpk_tensorpack.models.common import with_variables
from tpk_tensorpack.models.registry import layer_register

__all__ = ["BNReLU", "Maxout", "PReLU"]

v1 = tf.compat.v1


@layer_register(use_scope=None)
def Maxout(x: Any, num_unit: int) -> Any:
    """Return the maximum of each `num_unit` channels (Goodfellow et al., https://arxiv.org/abs/1302.4389).

    Args:
        x: a tensor of shape [batch, height, width, channels] or [batch, channels].
        num_unit: the number of channels to reduce to one; must divide the number of channels.

    Returns:
        A tensor with ``channels / num_unit`` channels, named ``output``.
    """
    shape = x.shape.as_list()
    if len(shape) not in (2, 4):
        raise CheckError(f"Maxout: the input has shape {shape}; expected two or four dimensions")
    channels = shape[-1]
    if channels is None or channels % num_unit:
        raise CheckError(f"Maxout: num_unit={num_unit} does not divide the {channels} channels of the input")
    return tf.identity(layers.maxout(x, channels // num_unit), name="output")


@layer_register()
def PReLU(x: Any, init: float = 0.001, name: str | None = None) -> Any:
    """Apply a rectifier with a learned negative slope (He et al., https://arxiv.org/abs/1502.01852).

    Variables: ``alpha``, a scalar.

    Args:
        x: a tensor.
        init: the initial slope.
        name: the name of the output.

    Returns:
        A tensor like `x`.
    """
    alpha = v1.get_variable("alpha", [], initializer=v1.constant_initializer(init))
    outputs = (1 + alpha) * x + (1 - alpha) * tf.abs(x)
    return with_variables(tf.multiply(outputs, 0.5, name=name), alpha=alpha)


@layer_register(use_scope=None)
def BNReLU(x: Any, name: str | None = None) -> Any:
    """Apply `BatchNorm`, named ``bn``, and ReLU.

    Args:
        x: images, or vectors.
        name: the name of the output.
    """
    return tf.nn.relu(BatchNorm("bn", x), name=name)
