"""Normalizations that do not depend on the batch: layer, group and instance normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.layers.layer_scope import ONES, ZEROS, Function, LayerScope, VariableOptions, open_layer, split_axis


def layer_normalization(
    inputs: Any,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    beta_regularizer: Function | None = None,
    gamma_regularizer: Function | None = None,
    beta_constraint: Function | None = None,
    gamma_constraint: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Normalize each example over its features (Ba et al., 2016, https://arxiv.org/abs/1607.06450).

    The layer has no counterpart in `tf.compat.v1.layers`. Its arguments, defaults and results are as in
    `tf.keras.layers.LayerNormalization`.

    Variables, with the sizes of the inputs along `axis`: ``gamma`` and ``beta``. They are float32 if the inputs are
    float16 or bfloat16.

    Args:
        inputs: a floating-point tensor of known rank.
        axis: the axes of mean and variance; their sizes must be known.
        epsilon: a number, added to the variance.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        beta_constraint: maps ``beta`` to its projection after an optimizer's update.
        gamma_constraint: the same for ``gamma``.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None for ``layer_normalization``, made unique.
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the layer.

    Example:
        ```python
        x = x + attention(layer_normalization(x))
        ```
    """
    with open_layer("layer_normalization", inputs, name, reuse) as layer:
        layer.require_floating()
        axes = sorted(layer.axes_of("axis", axis))
        sizes = [layer.known_size(one, "features") for one in axes]
        gamma_options = (gamma_initializer, gamma_regularizer, gamma_constraint) if scale else None
        beta_options = (beta_initializer, beta_regularizer, beta_constraint) if center else None
        gamma, beta = layer.scale_and_offset(sizes, gamma_options, beta_options, trainable)
        values = tf.cast(layer.inputs, layer.work_dtype)
        return _normalize(layer, values, axes, gamma, beta, epsilon, axes)


def group_normalization(
    inputs: Any,
    groups: int = 32,
    axis: int = -1,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    beta_regularizer: Function | None = None,
    gamma_regularizer: Function | None = None,
    beta_constraint: Function | None = None,
    gamma_constraint: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Normalize each example over groups of channels (Wu and He, 2018, https://arxiv.org/abs/1803.08494).

    The layer does not depend on the batch, so it works with batches that are too small for `batch_normalization`, and
    computes the same in training and in inference. It has no counterpart in `tf.compat.v1.layers`; its arguments,
    defaults and results are as in `tf.keras.layers.GroupNormalization`.

    Variables, of shape [channels]: ``gamma`` and ``beta``. They are float32 if the inputs are float16 or bfloat16.

    Args:
        inputs: a floating-point tensor of known rank, 2 or more.
        groups: the number of groups, a divisor of the number of channels. One group is a layer normalization with a
            parameter for each channel.
        axis: the axis of the channels, whose number must be known: -1 for channels last, 1 for channels first.
        epsilon: a number, added to the variance.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        beta_constraint: maps ``beta`` to its projection after an optimizer's update.
        gamma_constraint: the same for ``gamma``.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None for ``group_normalization``, made unique.
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the layer.

    Example:
        ```python
        x = tf.nn.relu(group_normalization(conv2d(x, 64, 3, use_bias=False), groups=8))
        ```
    """
    with open_layer("group_normalization", inputs, name, reuse) as layer:
        gamma = (gamma_initializer, gamma_regularizer, gamma_constraint) if scale else None
        beta = (beta_initializer, beta_regularizer, beta_constraint) if center else None
        return _normalize_groups(layer, groups, axis, epsilon, gamma, beta, trainable)


def instance_normalization(
    inputs: Any,
    axis: int = -1,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    beta_regularizer: Function | None = None,
    gamma_regularizer: Function | None = None,
    beta_constraint: Function | None = None,
    gamma_constraint: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Normalize each channel of each example (Ulyanov et al., 2016, https://arxiv.org/abs/1607.08022).

    The same as `group_normalization` with one channel per group. The layer has no counterpart in
    `tf.compat.v1.layers`; tensorpack's ``InstanceNorm`` has an epsilon of 1e-5.

    Variables, of shape [channels]: ``gamma`` and ``beta``. They are float32 if the inputs are float16 or bfloat16.

    Args:
        inputs: a floating-point tensor of known rank, 3 or more.
        axis: the axis of the channels, whose number must be known: -1 for channels last, 1 for channels first.
        epsilon: a number, added to the variance.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        beta_constraint: maps ``beta`` to its projection after an optimizer's update.
        gamma_constraint: the same for ``gamma``.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None for ``instance_normalization``, made unique.
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the layer.

    Example:
        ```python
        styled = tf.nn.relu(instance_normalization(conv2d(image, 32, 9, padding="same")))
        ```
    """
    with open_layer("instance_normalization", inputs, name, reuse) as layer:
        layer.known_rank(3, "(batch, ..., channels)")
        gamma = (gamma_initializer, gamma_regularizer, gamma_constraint) if scale else None
        beta = (beta_initializer, beta_regularizer, beta_constraint) if center else None
        return _normalize_groups(layer, None, axis, epsilon, gamma, beta, trainable)


def _normalize_groups(
    layer: LayerScope,
    groups: int | None,
    axis: int,
    epsilon: float,
    gamma: VariableOptions | None,
    beta: VariableOptions | None,
    trainable: bool,
) -> Any:
    """Normalize each example over groups of channels and all other axes; None is one channel per group."""
    layer.require_floating()
    layer.known_rank(2, "(batch, ..., channels)")
    channel_axis = layer.axis_of("axis", axis)
    if channel_axis == 0:
        raise layer.error(
            "axis", axis, "the axis of the channels, not of the batch", "Pass -1, or 1 for channels first."
        )
    channels = layer.known_size(channel_axis, "channels")
    groups = channels if groups is None else layer.count_of("groups", groups)
    if channels % groups:
        remedy = "Pass another number of groups, or give the previous layer another number of channels."
        raise layer.error("groups", groups, f"a divisor of the {channels} channels of axis {channel_axis}", remedy)
    scale, offset = layer.scale_and_offset([channels], gamma, beta, trainable)
    values = split_axis(tf.cast(layer.inputs, layer.work_dtype), channel_axis, groups)
    reduced = [one for one in range(1, values.shape.rank) if one != channel_axis]
    return _normalize(layer, values, reduced, scale, offset, epsilon, [channel_axis, channel_axis + 1])


def _normalize(
    layer: LayerScope,
    values: Any,
    axes: list[int],
    gamma: Any,
    beta: Any,
    epsilon: float,
    parameter_axes: list[int],
) -> Any:
    """Normalize `values` over `axes`; gamma and beta belong to `parameter_axes`."""
    epsilon = layer.number_of("epsilon", epsilon, 0.001)
    sizes = [size if axis in parameter_axes else 1 for axis, size in enumerate(values.shape.as_list())]
    scale, offset = (None if each is None else tf.cast(tf.reshape(each, sizes), values.dtype) for each in (gamma, beta))
    mean, variance = tf.nn.moments(values, axes, keepdims=True)
    outputs = tf.nn.batch_normalization(values, mean, variance, offset, scale, epsilon)
    if outputs.shape.rank != layer.inputs.shape.rank:
        outputs = tf.reshape(outputs, tf.shape(layer.inputs))
    outputs = tf.cast(outputs, layer.inputs.dtype.base_dtype)
    outputs.set_shape(layer.inputs.shape)
    return outputs
