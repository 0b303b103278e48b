"""Layers that normalize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpk import layers
from tpk_tensorflow1.contrib.layers.scopes import ZEROS, layout_of, scoped_layer

__all__ = ["batch_norm", "instance_norm", "layer_norm"]

v1 = tf.compat.v1


@scoped_layer("BatchNorm")
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    *,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: Any = v1.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    data_format: str = "NHWC",
    renorm_decay: float = 0.99,
    **options: Any,
) -> Any:
    """Normalize each feature with the statistics of the batch in training, and with moving averages otherwise.

    Args:
        inputs: a tensor of shape [batch, …, features], or images with channels first.
        decay: the decay of the moving averages.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        epsilon: a small number that is added to the variance.
        param_initializers: initializers by the names ``beta``, ``gamma``, ``moving_mean`` and ``moving_variance``.
        param_regularizers: regularizers by the names ``beta`` and ``gamma``.
        updates_collections: the collections for the updates of the moving averages; None to update them whenever the
            outputs are computed.
        is_training: a boolean, or a boolean tensor.
        data_format: ``"NHWC"`` or ``"NCHW"``.
        renorm_decay: the `renorm_momentum` of `tpk.layers.batch_normalization`.
        options: the arguments `trainable`, `fused`, `renorm` and `renorm_clipping` of `tpk.layers.batch_normalization`.
    """
    inputs = tf.convert_to_tensor(inputs)
    is_matrix = inputs.shape.rank == 2 and options.get("fused") is not False
    axis = 1 if layout_of(data_format) == "channels_first" and not is_matrix else -1
    scope = v1.get_variable_scope()
    reuse = None
    if is_matrix or updates_collections != v1.GraphKeys.UPDATE_OPS:
        # The layer of `tpk` uses these. It would create gamma before beta, and not update averages if not `trainable`.
        dtype = tf.float32 if inputs.dtype == tf.float16 else inputs.dtype
        trainable = options.pop("trainable", True)
        _parameters([inputs.shape[axis]], dtype, center, scale, trainable, param_initializers, param_regularizers)
        reuse = scope.reuse or v1.AUTO_REUSE
    options |= {f"{name}_initializer": each for name, each in (param_initializers or {}).items()}
    options |= {f"{name}_regularizer": each for name, each in (param_regularizers or {}).items()}
    updates = v1.get_collection_ref(v1.GraphKeys.UPDATE_OPS)
    before = len(updates)
    outputs = layers.batch_normalization(
        inputs[:, None, None] if is_matrix else inputs,  # the variance of images is unbiased
        axis=axis,
        momentum=decay,
        epsilon=epsilon,
        center=center,
        scale=scale,
        training=is_training,
        renorm_momentum=renorm_decay,
        name=scope,
        reuse=reuse,
        **options,
    )
    if is_matrix:
        outputs = tf.squeeze(outputs, [1, 2])
    if updates_collections == v1.GraphKeys.UPDATE_OPS:
        return outputs
    made = updates[before:]
    del updates[before:]
    if updates_collections is None:
        with tf.control_dependencies(made):
            return tf.identity(outputs)
    for update in made:
        v1.add_to_collections(updates_collections, update)
    return outputs


@scoped_layer("LayerNorm")
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    *,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
) -> Any:
    """Normalize each example over all its features (Ba et al., 2016, https://arxiv.org/abs/1607.06450).

    Args:
        inputs: a tensor of known rank, 2 or more.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        trainable: whether the variables are trained.
        begin_norm_axis: the first axis of mean and variance, which include all later ones.
        begin_params_axis: the variables have the shape of the inputs from this axis on. They are float32 if the inputs
            are float16 or bfloat16.

    Raises:
        ValueError: an axis or the shape of the inputs is invalid.
    """
    rank = inputs.shape.rank
    if rank is None or not all(-rank <= axis < rank for axis in (begin_norm_axis, begin_params_axis)):
        axes = f"{begin_norm_axis} or {begin_params_axis}"
        raise ValueError(f"tf.contrib.layers.layer_norm: the inputs of shape {inputs.shape} have no axis {axes}")
    is_half = inputs.dtype.base_dtype in (tf.float16, tf.bfloat16)
    values = tf.cast(inputs, tf.float32) if is_half else inputs
    beta, gamma = _parameters(inputs.shape[begin_params_axis:], values.dtype, center, scale, trainable)
    mean, variance = tf.nn.moments(values, list(range(rank))[begin_norm_axis:], keepdims=True)
    epsilon = 1e-3 if is_half else 1e-12
    return tf.cast(tf.nn.batch_normalization(values, mean, variance, beta, gamma, epsilon), inputs.dtype)


@scoped_layer("InstanceNorm")
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    *,
    param_initializers: Mapping[str, Any] | None = None,
    trainable: bool = True,
    data_format: str = "NHWC",
) -> Any:
    """Normalize each channel of each image; see `batch_norm` for the arguments."""
    rank = inputs.shape.rank
    channels = 1 if layout_of(data_format) == "channels_first" else rank - 1
    axes = [axis for axis in range(1, rank) if axis != channels]
    parameters = _parameters([inputs.shape[channels]], inputs.dtype, center, scale, trainable, param_initializers)
    shape = [-1 if axis == channels else 1 for axis in range(rank)]
    beta, gamma = (each if each is None else tf.reshape(each, shape) for each in parameters)
    mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
    return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)


def _parameters(
    shape: Any,
    dtype: Any,
    center: bool,
    scale: bool,
    trainable: bool,
    initializers: Mapping[str, Any] | None = None,
    regularizers: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Return beta and gamma, or None for those that are not wanted."""
    defaults = {"beta": ZEROS, "gamma": v1.ones_initializer(), **(initializers or {})}
    regularize = (regularizers or {}).get
    return [
        v1.get_variable(name, shape, dtype, defaults[name], regularize(name), trainable) if is_wanted else None
        for name, is_wanted in [("beta", center), ("gamma", scale)]
    ]
