"""Initializers and regularizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_not_negative
from tpk_tensorflow1.missing import own_names

v1 = tf.compat.v1

Function = Callable[..., Any]

# The standard deviation of a normal distribution truncated at two standard deviations: the initializers of
# `tf.contrib` and of `tf` correct for it by different factors.
_OF_TRUNCATED = 1.3 * 0.87962566103423978**2


def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None, dtype: Any = tf.float32
) -> Any:
    """Return an initializer whose variance is `factor` divided by the number of inputs or outputs.

    Args:
        factor: the default 2 is from He et al., https://arxiv.org/abs/1502.01852.
        mode: ``"FAN_IN"``, ``"FAN_OUT"`` or ``"FAN_AVG"``.
        uniform: whether the distribution is uniform; otherwise it is a truncated normal distribution.
        seed: the seed of the op.
        dtype: the dtype of the values.

    Raises:
        ValueError: `mode` is unknown.
    """
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise ValueError(f"variance_scaling_initializer(mode={mode!r}): expected 'FAN_IN', 'FAN_OUT' or 'FAN_AVG'")
    scale = factor if uniform else factor * _OF_TRUNCATED
    distribution = "uniform" if uniform else "truncated_normal"
    return v1.variance_scaling_initializer(scale, mode.lower(), distribution, seed=seed, dtype=dtype)


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32) -> Any:
    """Return the initializer of Glorot and Bengio, http://proceedings.mlr.press/v9/glorot10a.html."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def l1_regularizer(scale: float, scope: str | None = None) -> Function:
    """Return a function that maps weights to the sum of their absolute values, times `scale`."""
    return _regularizer(lambda weights: tf.reduce_sum(tf.abs(weights)), scale, scope or "l1_regularizer")


def l2_regularizer(scale: float, scope: str | None = None) -> Function:
    """Return a function that maps weights to half the sum of their squares, times `scale`."""
    return _regularizer(tf.nn.l2_loss, scale, scope or "l2_regularizer")


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None) -> Function:
    """Return the sum of `l1_regularizer` and `l2_regularizer`."""
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope or "l1_l2_regularizer")


def sum_regularizer(regularizer_list: Sequence[Function | None], scope: str | None = None) -> Function:
    """Return a function that maps weights to the sum of several regularizers."""
    regularizers = [each for each in regularizer_list if each is not None]

    def regularize(weights: Any) -> Any:
        with tf.name_scope(scope or "sum_regularizer") as name:
            losses = [loss for loss in (each(weights) for each in regularizers) if loss is not None]
            return tf.add_n(losses, name) if losses else None

    return regularize


def apply_regularization(regularizer: Function, weights_list: Sequence[Any] | None = None) -> Any:
    """Return the sum of a regularizer over weights, by default those in the collection ``WEIGHTS``."""
    weights = v1.get_collection(v1.GraphKeys.WEIGHTS) if weights_list is None else list(weights_list)
    losses = [loss for loss in map(regularizer, weights) if loss is not None]
    total = tf.add_n(losses) if losses else tf.constant(0.0)
    v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, total)
    return total


def _regularizer(norm: Function, scale: float, scope: str) -> Function:
    check_not_negative(scope, scale=scale)

    def regularize(weights: Any) -> Any:
        if scale == 0:
            return None
        with tf.name_scope(scope) as name:
            return tf.multiply(tf.cast(scale, weights.dtype.base_dtype), norm(weights), name)

    return regularize


__all__ = own_names(__name__)
