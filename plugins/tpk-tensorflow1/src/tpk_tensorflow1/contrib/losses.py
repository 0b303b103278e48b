"""`tf.contrib.losses`: the functions of `tf.losses` with predictions before labels."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

__all__ = [
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]

v1 = tf.compat.v1


def predictions_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of predictions and labels, given a function of labels and predictions."""
    labels, predictions, *rest = inspect.signature(function).parameters
    names = [predictions, labels, *rest]

    @functools.wraps(function)
    def swapped(*args: Any, **kwargs: Any) -> Any:
        return function(**dict(zip(names, args, strict=False)), **kwargs)

    return swapped


absolute_difference = predictions_first(v1.losses.absolute_difference)
cosine_distance = predictions_first(v1.losses.cosine_distance)
log_loss = predictions_first(v1.losses.log_loss)
mean_pairwise_squared_error = predictions_first(v1.losses.mean_pairwise_squared_error)
mean_squared_error = predictions_first(v1.losses.mean_squared_error)
sigmoid_cross_entropy = predictions_first(v1.losses.sigmoid_cross_entropy)
softmax_cross_entropy = predictions_first(v1.losses.softmax_cross_entropy)
sparse_softmax_cross_entropy = predictions_first(v1.losses.sparse_softmax_cross_entropy)

add_loss = v1.losses.add_loss
compute_weighted_loss = v1.losses.compute_weighted_loss
get_losses = v1.losses.get_losses
get_regularization_losses = v1.losses.get_regularization_losses
get_total_loss = v1.losses.get_total_loss


def hinge_loss(logits: Any, labels: Any = None, scope: str | None = None) -> Any:
    """Return the hinge loss of each element, for labels 0 and 1. It is not added to the losses."""
    with v1.name_scope(scope, "hinge_loss"):
        return tf.nn.relu(1 - (2 * tf.cast(labels, tf.float32) - 1) * logits)


__getattr__ = finder_in("tf.contrib.losses", __all__, optional="tf_slim.losses")
