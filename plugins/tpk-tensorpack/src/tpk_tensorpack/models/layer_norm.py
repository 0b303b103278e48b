"""Normalization of each example."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.models.common import ONES, ZEROS, feature_axis, normalize, with_variables
from tpk_tensorpack.models.registry import layer_register

__all__ = ["InstanceNorm", "LayerNorm"]

v1 = tf.compat.v1


@layer_register()
def LayerNorm(
    x: Any,
    epsilon: float = 1e-5,
    *,
    center: bool = True,
    scale: bool = True,
    gamma_initializer: Any = ONES,
    data_format: str = "channels_last",
) -> Any:
    """Normalize each example by its mean and variance (Ba et al., https://arxiv.org/abs/1607.06450).

    Variables: ``beta`` and ``gamma``, with one number per channel.

    Args:
        x: images, or vectors.
        epsilon: added to the variance.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        gamma_initializer: by default ones.
        data_format: ``"channels_last"`` (``"NHWC"``) or ``"channels_first"`` (``"NCHW"``), for images.

    Returns:
        A tensor like `x`, named ``output``.
    """
    axis = feature_axis("LayerNorm", x, data_format)
    return _normalized(x, list(range(1, x.shape.rank)), axis, epsilon, center, scale, gamma_initializer)


@layer_register()
def InstanceNorm(
    x: Any,
    epsilon: float = 1e-5,
    *,
    center: bool = True,
    scale: bool = True,
    gamma_initializer: Any = ONES,
    data_format: str = "channels_last",
    use_affine: bool | None = None,
) -> Any:
    """Normalize each channel of each image by its mean and variance (Ulyanov et al., https://arxiv.org/abs/1607.08022).

    See `LayerNorm` for variables, arguments and outputs; the obsolete `use_affine` sets both `center` and `scale`.
    """
    if use_affine is not None:
        center = scale = use_affine
    if x.shape.rank != 4:
        raise CheckError(f"InstanceNorm: the input has shape {x.shape}; expected images (rank 4)")
    axis = feature_axis("InstanceNorm", x, data_format)
    axes = [each for each in (1, 2, 3) if each != axis]
    return _normalized(x, axes, axis, epsilon, center, scale, gamma_initializer)


def _normalized(
    x: Any, axes: list[int], axis: int, epsilon: float, center: bool, scale: bool, gamma_initializer: Any
) -> Any:
    channels = x.shape.as_list()[axis]
    if channels is None:
        raise CheckError(f"the number of channels of the input with shape {x.shape} is unknown; set its shape")
    beta = v1.get_variable("beta", [channels], initializer=ZEROS) if center else None
    gamma = v1.get_variable("gamma", [channels], initializer=gamma_initializer) if scale else None
    outputs, _, _ = normalize(x, axes, axis, beta, gamma, epsilon, name="output")
    return with_variables(outputs, gamma=gamma, beta=beta)
