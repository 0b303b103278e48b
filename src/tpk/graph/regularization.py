"""Regularization: penalties on weights, selected by name or collected by layers, as part of the cost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_not_negative
from tpk.errors import ConfigError
from tpk.graph.variables import NamePattern, name_in_tower, tower_of, variable_name

logger = logging.getLogger(__name__)

Regularizer = Callable[[Any], Any]


def l2_regularizer(scale: float) -> Regularizer:
    """Return a function that computes the penalty ``scale * sum(x ** 2) / 2`` of a tensor.

    Because of the half, as in `tf.nn.l2_loss`, the gradient is ``scale * x``: `scale` is the factor of weight decay in
    papers. ``tf.contrib.layers`` had the same definition; Keras's `L2` leaves out the half.

    Args:
        scale: not negative.

    Raises:
        ConfigError: if it is negative or not a number.

    Example:
        ```python
        tpk.layers.dense(x, 10, kernel_regularizer=tpk.l2_regularizer(1e-4))
        ```
    """
    return _regularizer("l2_regularizer", scale, tf.nn.l2_loss)


def l1_regularizer(scale: float) -> Regularizer:
    """Return a function that computes the penalty ``scale * sum(abs(x))`` of a tensor.

    Args:
        scale: not negative.

    Raises:
        ConfigError: if it is negative or not a number.

    Example:
        ```python
        cost += tpk.regularize_cost(".*/kernel", tpk.l1_regularizer(1e-5))
        ```
    """
    return _regularizer("l1_regularizer", scale, lambda tensor: tf.reduce_sum(tf.abs(tensor)))


def _regularizer(name: str, scale: float, norm: Regularizer) -> Regularizer:
    check_not_negative(name, scale=scale)
    return lambda tensor: tf.multiply(tf.cast(scale, tensor.dtype.base_dtype), norm(tensor), name=name)


def regularize_cost(regex: str, func: Regularizer, name: str = "regularize_cost") -> Any:
    """Return the sum of the penalties of the trainable variables whose names match, to be added to the cost.

    It uses the variables that exist when it is called, so call it at the end of the tower function. If each device
    has a replica of the model, it uses the variables of the current tower. In an inference tower it costs nothing
    unless it is fetched.

    Args:
        regex: a regular expression that matches the whole name of a variable inside its tower, such as ``.*/kernel``.
        func: takes a variable and returns its penalty, a scalar tensor, such as `l2_regularizer(1e-4)`.
        name: the name of the result.

    Returns:
        A scalar tensor. It is zero, with a warning, if no name matches.

    Raises:
        ConfigError: if `regex` is invalid, `func` is not callable, or its result is not a scalar.

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
        # A name with a slash at the end is not made unique.
        return _sum([_penalty(func, variable) for variable in chosen], scope)


def regularize_cost_from_collection(name: str = "regularize_cost") -> Any:
    """Return the sum of the penalties that layers with a regularizer have collected, to be added to the cost.

    It uses the collection ``REGULARIZATION_LOSSES``, which holds penalties of regularizers in `tpk.layers` and of the
    `regularizer` of a variable scope. A tower sees only its own.

    Args:
        name: the name of the result.

    Returns:
        A scalar tensor. It is zero, with a warning, if the collection is empty.

    Example:
        ```python
        hidden = tpk.layers.dense(x, 64, kernel_regularizer=tpk.l2_regularizer(1e-4))
        ...
        return tf.add(cost, tpk.regularize_cost_from_collection(), name="cost")
        ```
    """
    losses = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)
    if not losses:
        logger.warning("regularize_cost_from_collection: no layer has a regularizer, so the result is 0")
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
            f"regularize_cost: for {name_in_tower(variable_name(variable))!r}, the function returned {penalty!r}; "
            "expected a scalar tensor, such as tpk.l2_regularizer(1e-4) returns."
        )
    return penalty
