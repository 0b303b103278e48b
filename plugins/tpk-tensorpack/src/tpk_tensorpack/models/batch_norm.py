"""Batch normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk import layers
from tpk.layers.layer_scope import ONES, ZEROS
from tpk.tower import get_current_tower_context
from tpk_tensorpack.models.common import old_arguments, rename_get_variable, with_variables
from tpk_tensorpack.models.registry import layer_register
from tpk_tensorpack.utils.argtools import get_data_format

__all__ = ["BatchNorm"]

v1 = tf.compat.v1

_NAMES = {"moving_mean": "mean/EMA", "moving_variance": "variance/EMA"}
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
@old_arguments([], _OLD_NAMES)
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
) -> Any:
    """Normalize each feature by the statistics of the batch in training, and by their moving averages elsewhere.

    Variables: ``beta``, ``gamma``, and, not trainable, ``mean/EMA`` and ``variance/EMA``.

    Args:
        inputs: images, or vectors.
        axis: of the features; by default what `data_format` says.
        training: whether to use the statistics of the batch; by default whether this tower is trained.
        momentum: the share of the averages that stays in each step.
        epsilon: what is added to the variance.
        center: whether there is a ``beta``.
        scale: whether there is a ``gamma``.
        beta_initializer: by default zeros.
        gamma_initializer: by default ones.
        virtual_batch_size: statistics are those of so many examples each ("ghost batches"); the batch size must be a
            multiple of it.
        data_format: ``"channels_last"`` (``"NHWC"``) or ``"channels_first"`` (``"NCHW"``), for images.
        ema_update: how the averages move in training: ``"collection"``, the default, by ops in ``UPDATE_OPS``, which
            trainers run with each step; ``"internal"``, as often as the layer is computed, also in a branch or a loop;
            ``"skip"``, not at all.
        sync_statistics: ``"nccl"`` or ``"horovod"``: statistics are those of all towers (of all processes).

    Returns:
        A tensor like `inputs`, named ``output``.

    Raises:
        ValueError: an argument is none of what is listed here, or two of them exclude each other.
    """
    rank = inputs.shape.rank
    if rank not in (2, 4):
        raise ValueError(
            f"BatchNorm: the input has the shape {inputs.shape}; expected images (rank 4) or vectors (rank 2)"
        )
    if axis is None:
        axis = 1 if rank == 4 and get_data_format(data_format) == "channels_first" else rank - 1
    if ema_update not in _EMA_UPDATES:
        raise ValueError(f"BatchNorm: ema_update={ema_update!r}: expected one of {', '.join(map(repr, _EMA_UPDATES))}")
    if sync_statistics not in _SYNC:
        raise ValueError(f"BatchNorm: sync_statistics={sync_statistics!r}: expected None, 'nccl' or 'horovod'")
    if virtual_batch_size is not None and sync_statistics is not None:
        raise ValueError("BatchNorm: statistics of ghost batches cannot be those of all towers, too; drop one argument")
    context = get_current_tower_context()
    if training is None:
        training = context is not None and context.is_training

    own_scope = v1.get_variable_scope()
    updates = v1.get_collection_ref(v1.GraphKeys.UPDATE_OPS)
    known = len(updates)
    with rename_get_variable(_NAMES):
        if virtual_batch_size is not None and training:
            normalize: Callable[..., Any] = _of_ghost_batches
            options: dict[str, Any] = {"size": virtual_batch_size}
        else:
            normalize = layers.batch_normalization
            options = {"training": training, "sync": sync_statistics is not None, "name": v1.get_variable_scope()}
        outputs = normalize(
            inputs,
            axis,
            momentum=momentum,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            **options,
        )
    if ema_update in ("internal", "skip"):
        own = updates[known:]
        del updates[known:]
        moves_shared = context is not None and not context.has_own_variables
        if ema_update == "internal" and not moves_shared:
            with tf.control_dependencies(own):
                outputs = tf.identity(outputs)
    with v1.variable_scope(own_scope, reuse=True, auxiliary_name_scope=False):
        variables = {
            "beta": v1.get_variable("beta") if center else None,
            "gamma": v1.get_variable("gamma") if scale else None,
            "moving_mean": v1.get_variable("mean/EMA"),
            "moving_variance": v1.get_variable("variance/EMA"),
        }
    outputs = with_variables(tf.identity(outputs, name="output"), **variables)
    outputs.variables.mean = outputs.variables.moving_mean
    outputs.variables.variance = outputs.variables.moving_variance
    return outputs


def _of_ghost_batches(
    inputs: Any,
    axis: int,
    *,
    size: int,
    momentum: float,
    epsilon: float,
    center: bool,
    scale: bool,
    beta_initializer: Any,
    gamma_initializer: Any,
) -> Any:
    """Normalize each `size` examples by their own statistics; the averages move by those of the first ones.

    (Hoffer et al., 2017, https://arxiv.org/abs/1705.08741.)
    """
    features = inputs.shape.as_list()[axis]
    shape = [features]
    beta = v1.get_variable("beta", shape, initializer=beta_initializer) if center else None
    gamma = v1.get_variable("gamma", shape, initializer=gamma_initializer) if scale else None
    average_mean = v1.get_variable("moving_mean", shape, initializer=ZEROS, trainable=False)
    average_variance = v1.get_variable("moving_variance", shape, initializer=ONES, trainable=False)

    dynamic = tf.shape(inputs)
    ghosts = tf.reshape(inputs, tf.concat([[dynamic[0] // size, size], dynamic[1:]], 0))
    ghosts.set_shape([None, size, *inputs.shape.as_list()[1:]])
    axes = [each + 1 for each in range(inputs.shape.rank) if each != axis]
    mean, variance = tf.nn.moments(ghosts, axes, keepdims=True)
    broadcast = [1] * ghosts.shape.rank
    broadcast[axis + 1] = features
    outputs = tf.nn.batch_normalization(
        ghosts,
        mean,
        variance,
        None if beta is None else tf.reshape(beta, broadcast),
        None if gamma is None else tf.reshape(gamma, broadcast),
        epsilon,
    )
    for average, statistics in ((average_mean, mean), (average_variance, variance)):
        move = v1.assign_sub(average, (average - tf.reshape(statistics[0], [features])) * (1 - momentum))
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, move)
    outputs = tf.reshape(outputs, dynamic)
    outputs.set_shape(inputs.shape)
    return outputs
