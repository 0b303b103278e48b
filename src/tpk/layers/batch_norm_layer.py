"""Batch normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.layers.batch_norm_ops import BatchNorm
from tpk.layers.cross_tower import is_summed_across_towers
from tpk.layers.layer_scope import ONES, ZEROS, Function, LayerScope, TrainingFlag, open_layer


def batch_normalization(
    inputs: Any,
    axis: int | Sequence[int] = -1,
    momentum: Any = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    moving_mean_initializer: Any = ZEROS,
    moving_variance_initializer: Any = ONES,
    beta_regularizer: Function | None = None,
    gamma_regularizer: Function | None = None,
    beta_constraint: Function | None = None,
    gamma_constraint: Function | None = None,
    training: Any = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_momentum: float = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Any = None,
    sync: bool = False,
) -> Any:
    """Normalize each feature: ``gamma * (inputs - mean) / sqrt(variance + epsilon) + beta``.

    Training uses mean and variance of the batch, and inference their moving averages (Ioffe and Szegedy, 2015,
    https://arxiv.org/abs/1502.03167).

    In training, the layer adds two ops to ``UPDATE_OPS``, which update the averages. Run them in each training step: by
    tpk's `RunUpdateOps` callback, or by making the train op depend on them.

    Variables, each of shape [features]: ``gamma``, ``beta``, and, not trainable, ``moving_mean`` and
    ``moving_variance``. They are float32 if the inputs are float16 or bfloat16.

    Args:
        inputs: a floating-point tensor of known rank.
        axis: the axis of the features, whose size must be known: -1 for channels last, 1 for channels first.
            With several axes, each combination is a feature, and the variables have as many axes as the inputs.
        momentum: the decay of the moving averages; a number or a scalar tensor.
        epsilon: a number, added to the variance.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``, which is redundant before a linear layer.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        moving_mean_initializer: an initializer or its name.
        moving_variance_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        beta_constraint: maps ``beta`` to its projection after an optimizer's update.
        gamma_constraint: the same for ``gamma``.
        training: a boolean, or a scalar boolean tensor. None for whether the current tower is trained, and False
            outside of towers.
        trainable: whether ``gamma`` and ``beta`` belong to ``TRAINABLE_VARIABLES``, and the updates to
            ``UPDATE_OPS``.
        name: the variable scope of the layer; None for ``batch_normalization``, made unique.
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.
        renorm: must be False; batch renormalization is not supported.
        renorm_clipping: has no effect without `renorm`.
        renorm_momentum: has no effect without `renorm`.
        fused: whether to use TensorFlow's fused kernel where there is one: for rank 4 or 5, `axis` 1 or the last, not
            for float64, and not if `training` is a tensor, except with the control flow of TensorFlow 1. None is True.
            With False, and for other inputs, the moving variance is biased; otherwise, it is unbiased.
        virtual_batch_size: must be None; virtual batches are not supported.
        adjustment: must be None; it is not supported.
        sync: whether to compute mean and variance in training over the batches of all towers, so that N towers compute
            the same as one tower with all their data: over all towers of all processes with the strategies
            ``collective`` and ``horovod``, and over the towers of a worker with ``distributed_replicated``. Without the
            fused kernel, it is slower, and the towers exchange small sums, three forward and two backward; use it where
            the batch of a tower is too small for good statistics (Peng et al., 2018, https://arxiv.org/abs/1711.07240).
            It has no effect with one tower and in inference. The strategy ``async`` does not support it.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid, or if the layer would add to
            ``UPDATE_OPS`` inside of a `tf.cond`, a `tf.while_loop` or a `tf.function`; it names the layer.
        TowerError: if `sync` is used inside of a `tf.cond`, a `tf.while_loop` or a `tf.function`.

    Example:
        ```python
        x = conv2d(image, 32, 3, use_bias=False)
        x = tf.nn.relu(batch_normalization(x))
        ```
    """
    with open_layer("batch_normalization", inputs, name, reuse) as layer:
        _refuse(layer, "renorm", renorm, False)
        _refuse(layer, "virtual_batch_size", virtual_batch_size, None)
        _refuse(layer, "adjustment", adjustment, None)
        layer.require_floating()
        flag = TrainingFlag.of(layer, training)
        if trainable and flag.static is not False:
            remedy = "Build the layer outside, or pass training=False or trainable=False."
            layer.check_can_be_collected("the update of its moving averages", remedy)
        axes = layer.axes_of("axis", axis)
        epsilon = layer.number_of("epsilon", epsilon, 0.001)
        shape = _parameter_shape(layer, axes)
        gamma_options = (gamma_initializer, gamma_regularizer, gamma_constraint) if scale else None
        beta_options = (beta_initializer, beta_regularizer, beta_constraint) if center else None
        gamma, beta = layer.scale_and_offset(shape, gamma_options, beta_options, trainable)
        moving_mean = layer.statistic("moving_mean", shape, moving_mean_initializer)
        moving_variance = layer.statistic("moving_variance", shape, moving_variance_initializer)
        momentum = layer.number_or_tensor_of("momentum", momentum, 0.99, moving_mean.dtype.base_dtype)
        batch_norm = BatchNorm(flag, axes, epsilon, momentum, gamma, beta, moving_mean, moving_variance)
        has_fused_kernel = fused is not False and batch_norm.has_fused_kernel(layer.inputs)
        is_synchronized = sync and flag.static is not False and is_summed_across_towers()
        # In a `tf.cond` of control flow v2, the gradient of the kernel may run on another device than the kernel, where
        # its intermediate results have another meaning.
        is_conditional = flag.static is None and tf.compat.v1.control_flow_v2_enabled()
        if has_fused_kernel and not is_synchronized and not is_conditional:
            outputs, updates = batch_norm.fused(layer.inputs)
        else:
            if is_conditional and not has_fused_kernel:
                _check_averages(layer, moving_mean)
            outputs, updates = batch_norm.composed(layer.inputs, is_synchronized, is_unbiased=has_fused_kernel)
        if trainable:
            for update in updates:
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
        return outputs


def _refuse(layer: LayerScope, what: str, got: object, supported: object) -> None:
    if got != supported:
        remedy = "tpk does not support it; leave it out, or build the normalization from tf.nn ops."
        raise layer.error(what, got, repr(supported), remedy)


def _check_averages(layer: LayerScope, average: Any) -> None:
    """Raise if the moving averages cannot be updated in a `tf.cond` of control flow v2."""
    if average.dtype != average.dtype.base_dtype:
        expected = "a resource variable, because a tf.cond updates it where training is a tensor"
        raise layer.error("the moving average", average, expected, "Create variables with use_resource=True.")


def _parameter_shape(layer: LayerScope, axes: list[int]) -> list[int]:
    """Return [features] for one axis; for several, the shape of the inputs with 1 for all other axes."""
    sizes = {axis: layer.known_size(axis, "features") for axis in axes}
    if len(axes) == 1:
        return list(sizes.values())
    return [sizes.get(axis, 1) for axis in range(layer.known_rank(1, "(..., features)"))]
