"""`tf.contrib.metrics`: the functions of `tf.metrics`, but with predictions before labels, and others."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.contrib.losses import predictions_first
from tpk_tensorflow1.missing import finder_in, own_names

v1 = tf.compat.v1

_RENAMED = {
    "average_precision_at_k": "sparse_average_precision_at_k",
    "percentage_below": "percentage_less",
    "precision_at_k": "sparse_precision_at_k",
    "recall_at_k": "sparse_recall_at_k",
}
_STREAMING = {
    f"streaming_{_RENAMED.get(name, name)}": predictions_first(function)
    for name, function in vars(v1.metrics).items()
    if inspect.isfunction(function) and not name.endswith("_at_top_k")
}
globals().update(_STREAMING)


confusion_matrix = v1.confusion_matrix
set_difference = tf.sets.difference
set_intersection = tf.sets.intersection
set_size = tf.sets.size
set_union = tf.sets.union


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Return the fraction of predictions that equal the labels in this batch; predictions with `weights` count more."""
    with v1.name_scope(name, "accuracy"):
        is_correct = tf.cast(tf.equal(predictions, labels), tf.float32)
        weights = tf.ones_like(is_correct) if weights is None else tf.cast(weights, tf.float32)
        total = tf.reduce_sum(tf.ones_like(is_correct) * weights)
        return tf.math.divide_no_nan(tf.reduce_sum(is_correct * weights), total)


def aggregate_metrics(*value_update_tuples: tuple[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Return the values and the update ops of several metrics."""
    return [value for value, _ in value_update_tuples], [update for _, update in value_update_tuples]


def aggregate_metric_map(names_to_tuples: dict[str, tuple[Any, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values and the update ops of several metrics, by name."""
    values = {name: value for name, (value, _) in names_to_tuples.items()}
    return values, {name: update for name, (_, update) in names_to_tuples.items()}


__all__ = own_names(__name__)

__getattr__ = finder_in("tf.contrib.metrics", __all__)
