"""`tf.contrib.losses`: the functions of `tf.losses`, but with predictions before labels."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

v1 = tf.compat.v1


def predictions_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes predictions before labels if `function` takes labels before predictions."""
    names = list(inspect.signature(function).parameters)
    if "labels" not in names[0]:
        return function
    names[:2] = reversed(names[:2])

    @functools.wraps(function)
    def swapped(*args: Any, **kwargs: Any) -> Any:
        return function(**dict(zip(names, args, strict=False)), **kwargs)

    return swapped


_FUNCTIONS = {
    name: predictions_first(function)
    for name, function in vars(v1.losses).items()
    if inspect.isfunction(function) and name != "mean_pairwise_squared_error"  # which computes something else
}
globals().update(_FUNCTIONS)

__all__ = sorted(_FUNCTIONS)


def hinge_loss(logits: Any, labels: Any = None, scope: str | None = None) -> Any:
    """Return the hinge loss of each element, for labels 0 and 1. It is not added to the losses."""
    with v1.name_scope(scope, "hinge_loss"):
        return tf.nn.relu(1 - (2 * tf.cast(labels, tf.float32) - 1) * logits)


__getattr__ = finder_in("tf.contrib.losses", __all__)
