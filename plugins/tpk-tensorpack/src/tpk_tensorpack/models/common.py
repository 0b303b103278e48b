"""What layers share: their variables as attributes of the output, and normalization by moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.models.registry import disable_layer_logging, layer_register
from tpk_tensorpack.models.tflayer import WEIGHT_NAMES, rename_get_variable, rename_tflayer_get_variable
from tpk_tensorpack.utils.argtools import get_data_format

__all__ = ["VariableHolder", "disable_layer_logging", "layer_register", "rename_tflayer_get_variable"]

v1 = tf.compat.v1

ZEROS = v1.zeros_initializer()
ONES = v1.ones_initializer()


class VariableHolder(SimpleNamespace):
    """Variables as attributes: the output of a layer has them in ``variables``, as in ``conv.variables.W``."""

    def all(self) -> list[Any]:
        """Return all variables."""
        return list(vars(self).values())


def with_variables(outputs: Any, **variables: Any) -> Any:
    """Set the variables (except None) as the ``variables`` attribute of `outputs`, and return `outputs`."""
    outputs.variables = VariableHolder(**{name: each for name, each in variables.items() if each is not None})
    return outputs


def existing_variables(names: Mapping[str, str]) -> dict[str, Any]:
    """Return variables of the current scope, the way code that reuses them gets them.

    Args:
        names: their names, by attribute of `VariableHolder`.
    """
    with v1.variable_scope(v1.get_variable_scope(), reuse=True, auxiliary_name_scope=False):
        return {key: v1.get_variable(name) for key, name in names.items()}


def feature_axis(layer: str, x: Any, data_format: str) -> int:
    """Return the axis of the features in images or vectors; `layer` names the layer in the error."""
    rank = x.shape.rank
    if rank not in (2, 4):
        raise CheckError(f"{layer}: the input has shape {x.shape}; expected images (rank 4) or vectors (rank 2)")
    is_channels_first = rank == 4 and get_data_format(data_format) == "channels_first"
    return 1 if is_channels_first else int(rank) - 1


def he_normal_initializer() -> Any:
    """Return the default initializer of weights: He et al., https://arxiv.org/abs/1502.01852."""
    return v1.variance_scaling_initializer(2.0, mode="fan_in", distribution="untruncated_normal")


def layer_with_weights(
    layer: Callable[..., Any], *, use_bias: bool, kernel_initializer: Any = None, **options: Any
) -> Any:
    """Return the outputs of a layer of `tpk.layers`, named ``output``, with variables ``W`` and ``b``."""
    options |= {"use_bias": use_bias, "kernel_initializer": kernel_initializer or he_normal_initializer()}
    with rename_get_variable(WEIGHT_NAMES):
        outputs = layer(**options, name=v1.get_variable_scope())
    variables = existing_variables({"W": "W", "b": "b"} if use_bias else {"W": "W"})
    return with_variables(tf.identity(outputs, name="output"), **variables)


def normalize(x: Any, over: list[int], feature_axis: int, beta: Any, gamma: Any, epsilon: float, name: Any) -> Any:
    """Normalize `x` by its mean and variance over axes.

    Args:
        x: the tensor.
        over: the axes.
        feature_axis: the axis of `beta` and `gamma`.
        beta: added to each feature; or None.
        gamma: multiplied with each feature; or None.
        epsilon: added to the variance.
        name: the name of the outputs; or None.

    Returns:
        The outputs; and the mean and the variance, of the rank of `x`.
    """
    mean, variance = tf.nn.moments(x, over, keepdims=True)
    shape = [1] * x.shape.rank
    shape[feature_axis] = x.shape.as_list()[feature_axis]
    offset, scale = (None if each is None else tf.reshape(each, shape) for each in (beta, gamma))
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon, name), mean, variance
