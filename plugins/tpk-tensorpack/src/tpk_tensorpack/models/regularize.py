"""Regularization: costs of weights and dropout."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk import layers
from tpk.graph import l1_regularizer, l2_regularizer
from tpk.tower import get_current_tower_context
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.models.registry import layer_register
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.argtools import log_once

__all__ = ["Dropout", "l1_regularizer", "l2_regularizer", "regularize_cost", "regularize_cost_from_collection"]

v1 = tf.compat.v1


def regularize_cost(regex: str, func: Callable[[Any], Any], name: str = "regularize_cost") -> Any:
    """Return the sum of a cost over the trainable variables with matching names.

    In a tower with separate variables, only these are matched, by their names within the tower. The cost is 0 in an
    inference tower.

    Args:
        regex: a regular expression to search for in names, which end in ``:0``, such as ``"fc.*/W"``.
        func: maps a variable to a cost, such as ``l2_regularizer(5e-4)``.
        name: the name of the sum.

    Returns:
        A scalar; 0 with a warning if no variable matches.

    Example:
        ```python
        cost = cost + regularize_cost("fc.*/W", l2_regularizer(5e-4))
        ```
    """
    context = get_current_tower_context()
    if context is not None and not context.is_training:
        return _no_cost(name)
    prefix, variables = "", v1.trainable_variables()
    if context is not None and context.has_own_variables and context.vs_name:
        prefix = f"{context.vs_name}/"
        variables = context.get_collection_in_tower(v1.GraphKeys.TRAINABLE_VARIABLES)
    with tf.name_scope(f"{name}_internals"):
        costs, names = [], []
        for variable in variables:
            within = variable.name.removeprefix(prefix)
            if re.search(regex, within):
                costs.append(tf.cast(func(variable), tf.float32))
                names.append(within)
    if not costs:
        logger.warning("regularize_cost: no trainable variable matches %r; the cost is 0", regex)
        return _no_cost(name)
    log_once(f"regularize_cost() found {len(names)} variables to regularize.")
    log_once(f"The following tensors will be regularized: {', '.join(names)}")
    return tf.add_n(costs, name=name)


def regularize_cost_from_collection(name: str = "regularize_cost") -> Any:
    """Return the sum of the regularization losses that the layers of this tower have collected.

    For shared variables, these are the losses of the tower that created them. The sum is 0 in an inference tower.

    Args:
        name: the name of the sum.
    """
    context = get_current_tower_context()
    if context is not None and not context.is_training:
        return _no_cost(name)
    losses = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
    if context is not None and context.has_own_variables:
        losses = context.get_collection_in_tower(v1.GraphKeys.REGULARIZATION_LOSSES)
    if not losses:
        return _no_cost(name)
    log_once(f"regularize_cost_from_collection() found {len(losses)} regularizers in REGULARIZATION_LOSSES collection.")
    return tf.add_n([tf.cast(loss, tf.float32) for loss in losses], name=name)


def _no_cost(name: str) -> Any:
    return tf.constant(0, tf.float32, name=f"empty_{name}")


@layer_register(use_scope=None)
def Dropout(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply dropout like `tf.layers.dropout`, but only in training.

    Args:
        x: a tensor.
        args: the probability of **keeping** a number, which old scripts pass positionally or as ``keep_prob``.
        kwargs: arguments of `tf.layers.dropout`: ``rate``, the probability of dropping a number, ``noise_shape``,
            ``seed`` and ``training`` (by default whether this is a training tower).

    Returns:
        A tensor like `x`.
    """
    if "is_training" in kwargs:
        kwargs["training"] = kwargs.pop("is_training")
    if args:
        if len(args) > 1:
            raise ValueError("Dropout takes one positional argument after the tensor: the probability to keep a number")
        kwargs["rate"] = 1 - args[0]
    elif "keep_prob" in kwargs:
        if "rate" in kwargs:
            raise CheckError("Dropout got both keep_prob and rate; use rate")
        kwargs["rate"] = 1 - kwargs.pop("keep_prob")
    return layers.dropout(x, **kwargs)
