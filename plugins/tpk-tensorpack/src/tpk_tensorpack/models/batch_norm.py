"""Batch normalization."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk import layers
from tpk.tower import get_current_tower_context
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.models.common import ONES, ZEROS, existing_variables, feature_axis, normalize, with_variables
from tpk_tensorpack.models.registry import layer_register
from tpk_tensorpack.models.tflayer import MOVING_NAMES, convert_to_tflayer_args, rename_get_variable

__all__ = ["BatchNorm", "BatchRenorm"]

v1 = tf.compat.v1

_OLD_NAMES = {
    "use_bias": "center",
    "use_scale": "scale",
    "gamma_init": "gamma_initializer",
    "decay": "momentum",
    "use_local_stat": "training",
}
_EMA_UPDATES = ("default", "collection", "internal", "skip")
_SYNC = (None, "nccl", "horovod")


@layer_register()
@convert_to_tflayer_args([], _OLD_NAMES)
def BatchNorm(
    inputs: Any,
    axis: int | None = None,
    *,
    training: bool | None = None,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    virtual_batch_size: int | None = None,
    data_format: str = "channels_last",
    ema_update: str = "default",
    sync_statistics: str | None = None,
    internal_update: bool | None = None,
) -> Any:
    """Normalize each feature by the batch statistics in training, and by their moving averages otherwise.

    Variables: ``beta`` and ``gamma``; and, not trainable, ``mean/EMA`` and ``variance/EMA``.

    Args:
        inputs: images, or vectors.
        axis: the feature axis; by default given by `data_format`.
        training: whether to use the batch statistics; by default whether this is a training tower.
        momentum: the decay of the moving averages.
        epsilon: added to the variance.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        beta_initializer: by default zeros.
        gamma_initializer: by default ones.
        virtual_batch_size: compute the statistics over groups of this many examples ("ghost batches"); must divide the
            batch size.
        data_format: ``"channels_last"`` (``"NHWC"``) or ``"channels_first"`` (``"NCHW"``), for images.
        ema_update: how to update the moving averages in training: ``"collection"``, the default, with ops in
            ``UPDATE_OPS``, which trainers run in each step; ``"internal"``, whenever the layer is computed, even in a
            branch or loop; ``"skip"``, never.
        sync_statistics: ``"nccl"`` or ``"horovod"``: compute the statistics over all towers (all processes).
        internal_update: the obsolete form of `ema_update`: True is ``"internal"``, False is ``"collection"``.

    Returns:
        A tensor like `inputs`, named ``output``.

    Raises:
        ValueError: an argument is invalid, or two arguments exclude each other.
    """
    default_axis = feature_axis("BatchNorm", inputs, data_format)
    axis = default_axis if axis is None else axis
    if internal_update is not None:
        if ema_update != "default":
            raise TypeError("BatchNorm got both ema_update and internal_update, its former name; drop the latter")
        ema_update = "internal" if internal_update else "collection"
    if ema_update not in _EMA_UPDATES:
        raise CheckError(f"BatchNorm: ema_update={ema_update!r}: expected one of {', '.join(map(repr, _EMA_UPDATES))}")
    if sync_statistics not in _SYNC:
        raise CheckError(f"BatchNorm: sync_statistics={sync_statistics!r}: expected None, 'nccl' or 'horovod'")
    if virtual_batch_size is not None and sync_statistics is not None:
        raise CheckError("BatchNorm: virtual_batch_size and sync_statistics exclude each other; drop one of them")
    context = get_current_tower_context()
    if training is None:
        training = context is not None and context.is_training

    updates = v1.get_collection_ref(v1.GraphKeys.UPDATE_OPS)
    known = len(updates)
    with rename_get_variable(MOVING_NAMES):
        if virtual_batch_size is not None and training:
            shape = [inputs.shape.as_list()[axis]]
            beta = v1.get_variable("beta", shape, initializer=beta_initializer) if center else None
            gamma = v1.get_variable("gamma", shape, initializer=gamma_initializer) if scale else None
            outputs = _of_ghost_batches(inputs, axis, virtual_batch_size, momentum, epsilon, beta, gamma)
        else:
            parameters = center, scale, beta_initializer, gamma_initializer
            sync, scope = sync_statistics is not None, v1.get_variable_scope()
            outputs = layers.batch_normalization(
                inputs, axis, momentum, epsilon, *parameters, training=training, sync=sync, name=scope
            )
    if ema_update in ("internal", "skip"):
        own = updates[known:]
        del updates[known:]
        moves_shared = context is not None and not context.has_own_variables
        if ema_update == "internal" and not moves_shared:
            with tf.control_dependencies(own):
                outputs = tf.identity(outputs)
    names = {**MOVING_NAMES, "mean": MOVING_NAMES["moving_mean"], "variance": MOVING_NAMES["moving_variance"]}
    names |= {name: name for name, exists in {"beta": center, "gamma": scale}.items() if exists}
    return with_variables(tf.identity(outputs, name="output"), **existing_variables(names))


@layer_register()
@convert_to_tflayer_args([], _OLD_NAMES)
def BatchRenorm(
    x: Any,
    rmax: Any,
    dmax: Any,
    *,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    gamma_initializer: Any = None,
    data_format: str = "channels_last",
) -> Any:
    """Normalize each feature by the batch statistics, corrected towards their moving averages.

    (Ioffe, 2017, https://arxiv.org/abs/1702.03275.) Variables: ``gamma`` and ``beta``; and, not trainable,
    ``moving_mean``, ``moving_variance`` and ``moving_stddev``, used outside of training, and ``renorm_mean`` and
    ``renorm_stddev``, used for the correction.

    Args:
        x: images or vectors.
        rmax: the maximum ratio of the batch's standard deviation to the average one; a number or a scalar.
        dmax: the maximum difference of the batch mean from the average mean, in standard deviations.
        momentum: the decay of the moving averages used for inference. The decay of the others is 0.99.
        epsilon: added to the variance.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        gamma_initializer: by default ones.
        data_format: ``"channels_last"`` (``"NHWC"``) or ``"channels_first"`` (``"NCHW"``), for images.

    Returns:
        A tensor like `x`, named ``output``.

    Raises:
        ValueError: the rank of `x` is neither 2 nor 4.
    """
    axis = feature_axis("BatchRenorm", x, data_format)
    features = x.shape.as_list()[axis]
    broadcast = [features if each == axis else 1 for each in range(x.shape.rank)]

    def variable(name: str, initializer: Any, trainable: bool = False) -> Any:
        return v1.get_variable(name, [features], initializer=initializer, trainable=trainable)

    gamma = variable("gamma", gamma_initializer or ONES, True) if scale else None
    beta = variable("beta", ZEROS, True) if center else None
    moving = [variable("moving_mean", ZEROS), variable("moving_variance", ONES), variable("moving_stddev", ONES)]
    renorm_mean, renorm_stddev = variable("renorm_mean", ZEROS), variable("renorm_stddev", ONES)

    def shaped(values: Any) -> Any:
        return None if values is None else tf.reshape(values, broadcast)

    context = get_current_tower_context()
    if context is None or not context.is_training:
        outputs = tf.nn.batch_normalization(x, *map(shaped, (moving[0], moving[1], beta, gamma)), epsilon)
    else:
        mean, variance = tf.nn.moments(x, [each for each in range(x.shape.rank) if each != axis])
        stddev = tf.sqrt(variance + epsilon)
        average_mean, average_stddev = renorm_mean.read_value(), renorm_stddev.read_value()
        average_stddev = tf.maximum(average_stddev, epsilon**0.5)
        r = tf.stop_gradient(tf.clip_by_value(stddev / average_stddev, 1.0 / rmax, rmax))
        d = tf.stop_gradient(tf.clip_by_value((mean - average_mean) / average_stddev, -dmax, dmax))
        outputs = (x - shaped(mean)) / shaped(stddev) * shaped(r) + shaped(d)
        outputs = outputs if gamma is None else outputs * shaped(gamma)
        outputs = outputs if beta is None else outputs + shaped(beta)
        with tf.control_dependencies([outputs]):
            _move_renormed(moving, (renorm_mean, mean), (renorm_stddev, stddev), momentum, epsilon)
    return with_variables(tf.identity(outputs, name="output"), gamma=gamma, beta=beta)


_RENORM_MOMENTUM = 0.99


def _move_renormed(
    moving: list[Any], mean: tuple[Any, Any], stddev: tuple[Any, Any], momentum: float, epsilon: float
) -> None:
    """Add ops to ``UPDATE_OPS`` that update the averages for inference, together with those for the correction."""

    def moved(average: Any, value: Any, decay: float) -> Any:
        return v1.assign_sub(average, (average - value) * (1 - decay))

    moving_mean, moving_variance, moving_stddev = moving
    with tf.control_dependencies([moved(average, value, _RENORM_MOMENTUM) for average, value in (mean, stddev)]):
        new_variance = tf.nn.relu(tf.square(moved(moving_stddev, stddev[1], momentum)) - epsilon)
        for update in (moved(moving_mean, mean[1], momentum), v1.assign(moving_variance, new_variance)):
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, update)


def _of_ghost_batches(inputs: Any, axis: int, size: int, momentum: float, epsilon: float, beta: Any, gamma: Any) -> Any:
    """Normalize every `size` examples by their own statistics; the averages are updated from the first group.

    (Hoffer et al., 2017, https://arxiv.org/abs/1705.08741.)
    """
    features = inputs.shape.as_list()[axis]
    average_mean = v1.get_variable("moving_mean", [features], initializer=ZEROS, trainable=False)
    average_variance = v1.get_variable("moving_variance", [features], initializer=ONES, trainable=False)

    dynamic = tf.shape(inputs)
    ghosts = tf.reshape(inputs, tf.concat([[dynamic[0] // size, size], dynamic[1:]], 0))
    ghosts.set_shape([None, size, *inputs.shape.as_list()[1:]])
    axes = [each + 1 for each in range(inputs.shape.rank) if each != axis]
    outputs, mean, variance = normalize(ghosts, axes, axis + 1, beta, gamma, epsilon, name=None)
    for average, statistics in ((average_mean, mean), (average_variance, variance)):
        move = v1.assign_sub(average, (average - tf.reshape(statistics[0], [features])) * (1 - momentum))
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, move)
    outputs = tf.reshape(outputs, dynamic)
    outputs.set_shape(inputs.shape)
    return outputs
