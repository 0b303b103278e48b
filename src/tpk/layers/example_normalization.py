"""Normalization of each example by itself: layer, group and instance normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.batch_norm import HALF_PRECISION
from tpk.layers.layer_scope import ONES, ZEROS, Function, LayerScope, open_layer


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

    It has no counterpart in `tf.compat.v1.layers`. Arguments, defaults and results are those of
    `tf.keras.layers.LayerNormalization`.

    Variables, of the sizes of the inputs along `axis`: ``gamma`` and ``beta``. They are float32 if the inputs are
    float16 or bfloat16.

    Args:
        inputs: a floating-point tensor of known rank.
        axis: the axes over which mean and variance are taken; their sizes must be known.
        epsilon: what is added to the variance; a number.
        center: whether there is a ``beta``, which is added.
        scale: whether there is a ``gamma``, which is multiplied by.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        beta_constraint: maps ``beta`` to its projection after an optimizer's update.
        gamma_constraint: the same for ``gamma``.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None means ``layer_normalization``, made unique.
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be; it names the layer.

    Example:
        ```python
        x = x + attention(layer_normalization(x))
        ```
    """
    with open_layer("layer_normalization", inputs, name, reuse) as layer:
        layer.require_floating()
        axes = sorted(layer.axes_of("axis", axis))
        epsilon = layer.number_of("epsilon", epsilon, 0.001)
        parameters = _Parameters(
            center,
            scale,
            (beta_initializer, beta_regularizer, beta_constraint),
            (gamma_initializer, gamma_regularizer, gamma_constraint),
            trainable,
        )
        gamma, beta = parameters.create(layer, [layer.known_size(one, "features") for one in axes])
        values = _in_work_dtype(layer.inputs)
        shape = _broadcast_shape(values, axes)
        return _normalize(layer, values, axes, _reshape(gamma, shape), _reshape(beta, shape), epsilon)


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
    """Normalize each example over groups of channels, and all else (Wu and He, https://arxiv.org/abs/1803.08494).

    It does not depend on the batch, and so serves where batches are too small for `batch_normalization`, in training
    and in inference alike. It has no counterpart in `tf.compat.v1.layers`; arguments, defaults and results are those of
    `tf.keras.layers.GroupNormalization`.

    Variables, of shape [channels]: ``gamma`` and ``beta``. They are float32 if the inputs are float16 or bfloat16.

    Args:
        inputs: a floating-point tensor of known rank, 2 or more.
        groups: into how many groups the channels are divided, of which the number of channels must be a multiple. One
            group is a layer normalization with a parameter for each channel.
        axis: the axis of the channels, whose number must be known: -1 for channels last, 1 for channels first.
        epsilon: what is added to the variance; a number.
        center: whether there is a ``beta``, which is added.
        scale: whether there is a ``gamma``, which is multiplied by.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        beta_constraint: maps ``beta`` to its projection after an optimizer's update.
        gamma_constraint: the same for ``gamma``.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None means ``group_normalization``, made unique.
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be; it names the layer.

    Example:
        ```python
        x = tf.nn.relu(group_normalization(conv2d(x, 64, 3, use_bias=False), groups=8))
        ```
    """
    with open_layer("group_normalization", inputs, name, reuse) as layer:
        layer.require_floating()
        channel_axis, channels = _channels(layer, axis, 2)
        groups = layer.count_of("groups", groups)
        if channels % groups:
            remedy = "Pass another number of groups, or give the layer before this one another number of channels."
            raise layer.error("groups", groups, f"a divisor of the {channels} channels of axis {channel_axis}", remedy)
        epsilon = layer.number_of("epsilon", epsilon, 0.001)
        parameters = _Parameters(
            center,
            scale,
            (beta_initializer, beta_regularizer, beta_constraint),
            (gamma_initializer, gamma_regularizer, gamma_constraint),
            trainable,
        )
        gamma, beta = parameters.create(layer, [channels])
        shape = tf.shape(layer.inputs)
        members = [groups, channels // groups]
        grouped_shape = tf.concat([shape[:channel_axis], members, shape[channel_axis + 1 :]], 0)
        values = tf.reshape(_in_work_dtype(layer.inputs), grouped_shape)
        values.set_shape(_replaced(layer.inputs.shape.as_list(), channel_axis, members))
        reduced = [one for one in range(1, values.shape.rank) if one != channel_axis]
        shape = _broadcast_shape(values, [channel_axis, channel_axis + 1])
        return _normalize(layer, values, reduced, _reshape(gamma, shape), _reshape(beta, shape), epsilon)


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
    """Normalize each channel of each example over all else (Ulyanov et al., 2016, https://arxiv.org/abs/1607.08022).

    It is a `group_normalization` with as many groups as there are channels. It has no counterpart in
    `tf.compat.v1.layers`; tensorpack's ``InstanceNorm`` has an epsilon of 1e-5.

    Variables, of shape [channels]: ``gamma`` and ``beta``. They are float32 if the inputs are float16 or bfloat16.

    Args:
        inputs: a floating-point tensor of known rank, 3 or more.
        axis: the axis of the channels, whose number must be known: -1 for channels last, 1 for channels first.
        epsilon: what is added to the variance; a number.
        center: whether there is a ``beta``, which is added.
        scale: whether there is a ``gamma``, which is multiplied by.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        beta_constraint: maps ``beta`` to its projection after an optimizer's update.
        gamma_constraint: the same for ``gamma``.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None means ``instance_normalization``, made unique.
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be; it names the layer.

    Example:
        ```python
        styled = tf.nn.relu(instance_normalization(conv2d(image, 32, 9, padding="same")))
        ```
    """
    with open_layer("instance_normalization", inputs, name, reuse) as layer:
        layer.require_floating()
        channel_axis, channels = _channels(layer, axis, 3)
        epsilon = layer.number_of("epsilon", epsilon, 0.001)
        parameters = _Parameters(
            center,
            scale,
            (beta_initializer, beta_regularizer, beta_constraint),
            (gamma_initializer, gamma_regularizer, gamma_constraint),
            trainable,
        )
        gamma, beta = parameters.create(layer, [channels])
        values = _in_work_dtype(layer.inputs)
        reduced = [one for one in range(1, values.shape.rank) if one != channel_axis]
        shape = _broadcast_shape(values, [channel_axis])
        return _normalize(layer, values, reduced, _reshape(gamma, shape), _reshape(beta, shape), epsilon)


def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation: Function | str | None = None,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float | None = None,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    beta_regularizer: Function | None = None,
    gamma_regularizer: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Normalize each example by the mean and variance of its own (Ba et al., 2016, https://arxiv.org/abs/1607.06450).

    It computes what `tf.contrib.layers.layer_norm` of TensorFlow 1 did, by the same variables, ``beta`` and
    ``gamma``, in the same default scope, ``LayerNorm``, so checkpoints of it load. The names of arguments are
    those of the other layers: `activation` was ``activation_fn``, and `name` was ``scope``. It normalizes over all axes
    but the batch; `layer_normalization` does so over the last one only, as Transformers want it.

    Args:
        inputs: a floating-point tensor of known rank, 2 or more.
        center: whether there is a ``beta``, which is added.
        scale: whether there is a ``gamma``, which is multiplied by.
        activation: a function, or its name in `tf.nn`; None is linear.
        begin_norm_axis: mean and variance are taken over this axis and all later ones.
        begin_params_axis: the variables have the shape of the inputs from this axis on, which must be known.
        epsilon: what is added to the variance; None means 1e-12, or 1e-3 for float16 and bfloat16.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None means ``LayerNorm``, made unique.
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be; it names the layer.
    """
    with open_layer("layer_norm", inputs, name, reuse, default_name="LayerNorm") as layer:
        layer.require_floating()
        rank = layer.known_rank(2, "(batch, ...)")
        norm_axes = range(layer.axis_of("begin_norm_axis", begin_norm_axis), rank)
        params_axes = range(layer.axis_of("begin_params_axis", begin_params_axis), rank)
        shape = [layer.known_size(axis, "parameters") for axis in params_axes]
        beta = gamma = None
        if center:
            beta = layer.variable(
                "beta",
                shape,
                initializer=beta_initializer,
                regularizer=beta_regularizer,
                trainable=trainable,
            )
        if scale:
            gamma = layer.variable(
                "gamma",
                shape,
                initializer=gamma_initializer,
                regularizer=gamma_regularizer,
                trainable=trainable,
            )
        if epsilon is None:
            epsilon = 1e-3 if layer.inputs.dtype.base_dtype in HALF_PRECISION else 1e-12
        epsilon = layer.number_of("epsilon", epsilon, 1e-12)
        outputs = _normalize(layer, _in_work_dtype(layer.inputs), list(norm_axes), gamma, beta, epsilon)
        return layer.finish(outputs, activation)


@attrs.frozen
class _Parameters:
    """What ``gamma`` and ``beta`` are like: whether they are, and initializer, regularizer and constraint of each."""

    center: bool
    scale: bool
    beta: tuple[Any, Function | None, Function | None]
    gamma: tuple[Any, Function | None, Function | None]
    trainable: bool

    def create(self, layer: LayerScope, shape: list[int]) -> tuple[Any, Any]:
        """Create or get ``gamma`` and ``beta``; what is not wanted is None."""
        gamma = self._variable(layer, "gamma", shape, self.gamma) if self.scale else None
        beta = self._variable(layer, "beta", shape, self.beta) if self.center else None
        return gamma, beta

    def _variable(self, layer: LayerScope, name: str, shape: list[int], of: tuple[Any, Any, Any]) -> Any:
        dtype = layer.inputs.dtype.base_dtype
        return layer.variable(
            name,
            shape,
            dtype=tf.float32 if dtype in HALF_PRECISION else dtype,
            initializer=of[0],
            regularizer=of[1],
            constraint=of[2],
            trainable=self.trainable,
        )


def _channels(layer: LayerScope, axis: int, at_least: int) -> tuple[int, int]:
    """Return the axis of the channels, counted from the first, and how many there are."""
    layer.known_rank(at_least, "(batch, ..., channels)")
    channel_axis = layer.axis_of("axis", axis)
    if channel_axis == 0:
        raise layer.error("axis", axis, "that of the channels, not of the batch", "Pass -1, or 1 for channels first.")
    return channel_axis, layer.known_size(channel_axis, "channels")


def _normalize(layer: LayerScope, values: Any, axes: list[int], gamma: Any, beta: Any, epsilon: float) -> Any:
    """Normalize `values` over `axes`; gamma and beta broadcast to them."""
    gamma, beta = (None if each is None else tf.cast(each, values.dtype) for each in (gamma, beta))
    mean, variance = tf.nn.moments(values, axes, keepdims=True)
    outputs = tf.nn.batch_normalization(values, mean, variance, beta, gamma, epsilon)
    if outputs.shape.rank != layer.inputs.shape.rank:
        outputs = tf.reshape(outputs, tf.shape(layer.inputs))
    outputs = tf.cast(outputs, layer.inputs.dtype.base_dtype)
    outputs.set_shape(layer.inputs.shape)
    return outputs


def _in_work_dtype(inputs: Any) -> Any:
    """Sums of 16-bit numbers lose most of their digits."""
    return tf.cast(inputs, tf.float32) if inputs.dtype.base_dtype in HALF_PRECISION else inputs


def _broadcast_shape(values: Any, axes: Sequence[int]) -> list[int]:
    """The shape that has the sizes of `values` along `axes`, and 1 elsewhere."""
    return [size if axis in axes else 1 for axis, size in enumerate(values.shape.as_list())]


def _reshape(parameter: Any, shape: list[int]) -> Any:
    return None if parameter is None else tf.reshape(parameter, shape)


def _replaced(sizes: list[int | None], axis: int, by: list[int]) -> list[int | None]:
    return [*sizes[:axis], *by, *sizes[axis + 1 :]]
