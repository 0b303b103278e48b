"""Layers that normalize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk import layers
from tpk_tensorflow1.contrib.framework import add_arg_scope
from tpk_tensorflow1.contrib.layers.scopes import ZEROS, Function, finished, layer_scope, layout_of

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "unit_norm"]

v1 = tf.compat.v1


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Function | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: Any = v1.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: None = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
) -> Any:
    """Normalize each feature with the statistics of the batch in training, and with moving averages otherwise.

    Args:
        inputs: a tensor of shape [batch, …, features], or images with channels first.
        decay: the decay of the moving averages.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        epsilon: a small number that is added to the variance.
        activation_fn: the activation.
        param_initializers: initializers by the names ``beta``, ``gamma``, ``moving_mean`` and ``moving_variance``.
        param_regularizers: regularizers by the names ``beta`` and ``gamma``.
        updates_collections: the collections for the updates of the moving averages; None to update them whenever the
            outputs are computed.
        is_training: a boolean, or a boolean tensor.
        reuse: whether to reuse existing variables.
        variables_collections: see `fully_connected`.
        outputs_collections: see there.
        trainable: whether the variables are trained.
        batch_weights: must be None.
        fused: whether to use the fused op.
        data_format: ``"NHWC"`` or ``"NCHW"``.
        zero_debias_moving_mean: must be False.
        scope: the variable scope; by default ``BatchNorm``, numbered if the name is in use.
        renorm: see `tpk.layers.batch_norm_layer`.
        renorm_clipping: see there.
        renorm_decay: see there.

    Raises:
        ValueError: `batch_weights` or `zero_debias_moving_mean` is given.
    """
    if batch_weights is not None or zero_debias_moving_mean:
        raise ValueError("tf.contrib.layers.batch_norm: batch_weights and zero_debias_moving_mean are not supported")
    parameters = {f"{name}_initializer": each for name, each in (param_initializers or {}).items()}
    parameters |= {f"{name}_regularizer": each for name, each in (param_regularizers or {}).items()}
    with layer_scope(scope, "BatchNorm", reuse, variables_collections) as layer:
        updates = v1.get_collection_ref(v1.GraphKeys.UPDATE_OPS)
        before = len(updates)
        outputs = layers.batch_normalization(
            inputs,
            axis=1 if layout_of(data_format) == "channels_first" else -1,
            momentum=decay,
            epsilon=epsilon,
            center=center,
            scale=scale,
            trainable=trainable,
            training=is_training,
            renorm=renorm,
            renorm_clipping=renorm_clipping,
            renorm_momentum=renorm_decay,
            fused=fused,
            name=layer,
            **parameters,
        )
        if updates_collections != v1.GraphKeys.UPDATE_OPS:
            made = updates[before:]
            del updates[before:]
            if updates_collections is None:
                with tf.control_dependencies(made):
                    outputs = tf.identity(outputs)
            else:
                for update in made:
                    v1.add_to_collections(updates_collections, update)
        return finished(outputs, outputs_collections, layer.name, activation_fn)


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalize each example over all its features (Ba et al., 2016, https://arxiv.org/abs/1607.06450).

    Args:
        inputs: a tensor of known rank, 2 or more.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        activation_fn: the activation.
        reuse: see `fully_connected`.
        variables_collections: see there.
        outputs_collections: see there.
        trainable: see there.
        begin_norm_axis: the first axis of mean and variance, which include all later ones.
        begin_params_axis: the variables have the shape of the inputs from this axis on. They are float32 if the inputs
            are float16 or bfloat16.
        scope: the variable scope; by default ``LayerNorm``, numbered if the name is in use.

    Raises:
        ValueError: an axis or the shape of the inputs is invalid.
    """
    rank = inputs.shape.rank
    if rank is None or not all(-rank <= axis < rank for axis in (begin_norm_axis, begin_params_axis)):
        raise ValueError(
            f"tf.contrib.layers.layer_norm: the inputs of shape {inputs.shape} have no axis {begin_norm_axis} or "
            f"{begin_params_axis}"
        )
    is_half = inputs.dtype.base_dtype in (tf.float16, tf.bfloat16)
    values = tf.cast(inputs, tf.float32) if is_half else inputs

    with layer_scope(scope, "LayerNorm", reuse, variables_collections) as layer:
        beta, gamma = _parameters(inputs.shape[begin_params_axis:], values.dtype, center, scale, trainable)
        mean, variance = tf.nn.moments(values, list(range(rank))[begin_norm_axis:], keepdims=True)
        epsilon = 1e-3 if is_half else 1e-12
        outputs = tf.nn.batch_normalization(values, mean, variance, beta, gamma, epsilon)
        return finished(tf.cast(outputs, inputs.dtype), outputs_collections, layer.name, activation_fn)


@add_arg_scope
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Function | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Normalize each channel of each image; see `batch_norm` for the arguments."""
    rank = inputs.shape.rank
    channels = 1 if layout_of(data_format) == "channels_first" else rank - 1
    axes = [axis for axis in range(1, rank) if axis != channels]
    with layer_scope(scope, "InstanceNorm", reuse, variables_collections) as layer:
        parameters = _parameters([inputs.shape[channels]], inputs.dtype, center, scale, trainable, param_initializers)
        shape = [-1 if axis == channels else 1 for axis in range(rank)]
        beta, gamma = (each if each is None else tf.reshape(each, shape) for each in parameters)
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return finished(outputs, outputs_collections, layer.name, activation_fn)


@add_arg_scope
def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Function | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    mean_close_to_zero: bool = False,
) -> Any:
    """Normalize groups of channels of each image; see `batch_norm` for other arguments.

    Args:
        inputs: a tensor of known rank.
        groups: the number of groups, a divisor of the number of channels.
        channels_axis: the axis of the channels.
        reduction_axes: the other axes to normalize over.
        mean_close_to_zero: ignored; it changed only the rounding.
    """
    rank = inputs.shape.rank
    axis, channels = channels_axis % rank, inputs.shape[channels_axis]
    split = [groups, channels // groups]
    sizes = tf.shape(inputs)
    axes = [each % rank + (each % rank > axis) for each in reduction_axes]
    with layer_scope(scope, "GroupNorm", reuse, variables_collections) as layer:
        parameters = _parameters([channels], inputs.dtype, center, scale, trainable, param_initializers)
        shape = [1] * axis + split + [1] * (rank - axis - 1)
        beta, gamma = (each if each is None else tf.reshape(each, shape) for each in parameters)
        grouped = tf.reshape(inputs, tf.concat([sizes[:axis], split, sizes[axis + 1 :]], 0))
        mean, variance = tf.nn.moments(grouped, [*axes, axis + 1], keepdims=True)
        outputs = tf.reshape(tf.nn.batch_normalization(grouped, mean, variance, beta, gamma, epsilon), sizes)
        outputs.set_shape(inputs.shape)
        return finished(outputs, outputs_collections, layer.name, activation_fn)


def _parameters(
    shape: Any, dtype: Any, center: bool, scale: bool, trainable: bool, initializers: Mapping[str, Any] | None = None
) -> list[Any]:
    """Return beta and gamma, or None for those that are not wanted."""
    defaults = {"beta": ZEROS, "gamma": v1.ones_initializer()} | dict(initializers or {})
    return [
        v1.get_variable(name, shape, dtype, defaults[name], trainable=trainable) if is_wanted else None
        for name, is_wanted in [("beta", center), ("gamma", scale)]
    ]


def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: str | None = None) -> Any:
    """Scale inputs to unit norm along an axis."""
    with tf.name_scope(scope or "UnitNorm"):
        return inputs / tf.sqrt(epsilon + tf.reduce_sum(tf.square(inputs), dim, keepdims=True))
