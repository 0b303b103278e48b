"""Regularization: penalties of weights, found by name or collected by layers, as a part of the cost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk.checks import check_not_negative
from tpk.errors import ConfigError
from tpk.graph.variables import NamePattern, name_in_tower, tower_of, variable_name

logger = logging.getLogger(__name__)

Regularizer = Callable[[Any], Any]


def l2_regularizer(scale: float) -> Regularizer:
    """Return a function that makes of a tensor the penalty ``scale * sum(x ** 2) / 2``.

    With that half, of `tf.nn.l2_loss`, its gradient is ``scale * x``: so `scale` is the factor of weight decay that
    papers state. (It is what ``tf.contrib.layers`` had; Keras's `L2` leaves out the half.)

    Args:
        scale: not negative.

    Raises:
        ConfigError: if it is negative or not a number.

    Example:
        ```python
        tpk.layers.dense(x, 10, kernel_regularizer=tpk.l2_regularizer(1e-4))
        ```
    """
    check_not_negative("l2_regularizer", scale=scale)

    def l2(tensor: Any) -> Any:
        return tf.multiply(tf.cast(scale, tensor.dtype.base_dtype), tf.nn.l2_loss(tensor), name="l2_regularizer")

    return l2


def l1_regularizer(scale: float) -> Regularizer:
    """Return a function that makes of a tensor the penalty ``scale * sum(abs(x))``.

    Args:
        scale: not negative.

    Raises:
        ConfigError: if it is negative or not a number.

    Example:
        ```python
        cost += tpk.regularize_cost(".*/kernel", tpk.l1_regularizer(1e-5))
        ```
    """
    check_not_negative("l1_regularizer", scale=scale)

    def l1(tensor: Any) -> Any:
        return tf.multiply(
            tf.cast(scale, tensor.dtype.base_dtype), tf.reduce_sum(tf.abs(tensor)), name="l1_regularizer"
        )

    return l1


def regularize_cost(regex: str, func: Regularizer, name: str = "regularize_cost") -> Any:
    """Return the sum of the penalties of the trainable variables whose names match, to be added to the cost.

    It takes the variables that are there when it is called, so call it at the end of the tower function; in a training
    with a replicate of the model on each device, those of this tower. In an inference tower it costs nothing, unless
    it is asked for.

    Args:
        regex: a regular expression that matches the whole name of a variable inside its tower, such as ``.*/kernel``.
        func: takes a variable and returns its penalty, a scalar tensor, such as `l2_regularizer(1e-4)`.
        name: the name of the result.

    Returns:
        A scalar tensor; a zero, and a warning, if no name matches.

    Raises:
        ConfigError: if `regex` is invalid, `func` cannot be called, or what it returns is no scalar.

    Example:
        ```python
        def build_graph(self, image, label):
            ...
            return tf.add(cost, tpk.regularize_cost(".*/kernel", tpk.l2_regularizer(1e-4)), name="cost")
        ```
    """
    pattern = NamePattern(regex, "regularize_cost")
    if not callable(func):
        raise ConfigError(
            f"regularize_cost takes a function of a variable, such as l2_regularizer(1e-4); got {func!r}."
        )
    tower = tower_of(tf.compat.v1.get_variable_scope().name + "/")
    own = [each for each in tf.compat.v1.trainable_variables() if tower_of(variable_name(each)) == tower]
    pattern.warn_unless_any(own)
    chosen = [each for each in own if pattern.matches(each)]
    if chosen and not tower:
        logger.info("regularize_cost: %s", ", ".join(map(variable_name, chosen)))
    with tf.name_scope(name) as scope:
        # With its slash, the name of a scope becomes that of an op.
        return _sum([_penalty(func, variable) for variable in chosen], scope)


def regularize_cost_from_collection(name: str = "regularize_cost") -> Any:
    """Return the sum of the penalties that layers with a regularizer have collected, to be added to the cost.

    They are those in ``REGULARIZATION_LOSSES``: of `kernel_regularizer` and the like of `tpk.layers`, and of the
    `regularizer` of a variable scope. A tower sees its own there.

    Args:
        name: the name of the result.

    Returns:
        A scalar tensor; a zero, and a warning, if there are none.

    Example:
        ```python
        hidden = tpk.layers.dense(x, 64, kernel_regularizer=tpk.l2_regularizer(1e-4))
        ...
        return tf.add(cost, tpk.regularize_cost_from_collection(), name="cost")
        ```
    """
    losses = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)
    if not losses:
        logger.warning("regularize_cost_from_collection: no layer has a regularizer, so there is nothing to add")
    with tf.name_scope(name) as scope:
        return _sum(losses, scope)


def _sum(penalties: list[Any], name: str) -> Any:
    if not penalties:
        return tf.zeros([], name=name)
    dtype = max((penalty.dtype.base_dtype for penalty in penalties), key=lambda each: each.size)
    return tf.add_n([tf.cast(penalty, dtype) for penalty in penalties], name=name)


def _penalty(func: Regularizer, variable: Any) -> Any:
    penalty = func(variable)
    if not tf.is_tensor(penalty) or penalty.shape.rank not in (0, None):
        raise ConfigError(
            f"regularize_cost: of {name_in_tower(variable_name(variable))!r}, the function made {penalty!r}; expected "
            "a scalar tensor. Sum it up, as tpk.l2_regularizer(1e-4) does."
        )
    return penalty
