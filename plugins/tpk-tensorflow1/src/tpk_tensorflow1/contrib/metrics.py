"""`tf.contrib.metrics`: the functions of `tf.metrics` with predictions before labels, and others."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_tensorflow1.contrib.losses import predictions_first
from tpk_tensorflow1.missing import finder_in

v1 = tf.compat.v1

_STREAMING = {
    "streaming_accuracy": "accuracy",
    "streaming_auc": "auc",
    "streaming_false_negatives": "false_negatives",
    "streaming_false_positives": "false_positives",
    "streaming_mean_absolute_error": "mean_absolute_error",
    "streaming_mean_cosine_distance": "mean_cosine_distance",
    "streaming_mean_iou": "mean_iou",
    "streaming_mean_relative_error": "mean_relative_error",
    "streaming_mean_squared_error": "mean_squared_error",
    "streaming_precision": "precision",
    "streaming_precision_at_thresholds": "precision_at_thresholds",
    "streaming_recall": "recall",
    "streaming_recall_at_thresholds": "recall_at_thresholds",
    "streaming_root_mean_squared_error": "root_mean_squared_error",
    "streaming_sensitivity_at_specificity": "sensitivity_at_specificity",
    "streaming_sparse_precision_at_k": "precision_at_k",
    "streaming_sparse_recall_at_k": "recall_at_k",
    "streaming_specificity_at_sensitivity": "specificity_at_sensitivity",
    "streaming_true_negatives": "true_negatives",
    "streaming_true_positives": "true_positives",
}

__all__ = [
    *_STREAMING,
    "accuracy",
    "aggregate_metric_map",
    "aggregate_metrics",
    "confusion_matrix",
    "set_difference",
    "set_intersection",
    "set_size",
    "set_union",
    "streaming_mean",
    "streaming_mean_tensor",
    "streaming_percentage_less",
]

globals().update({name: predictions_first(getattr(v1.metrics, today)) for name, today in _STREAMING.items()})

streaming_mean = v1.metrics.mean
streaming_mean_tensor = v1.metrics.mean_tensor
streaming_percentage_less = v1.metrics.percentage_below
confusion_matrix = v1.confusion_matrix
set_difference = tf.sets.difference
set_intersection = tf.sets.intersection
set_size = tf.sets.size
set_union = tf.sets.union


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Return the fraction of predictions that equal the labels, in this batch."""
    with v1.name_scope(name, "accuracy"):
        is_correct = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(is_correct)
        weights = tf.cast(weights, tf.float32) * tf.ones_like(is_correct)
        return tf.math.divide_no_nan(tf.reduce_sum(is_correct * weights), tf.reduce_sum(weights))


def aggregate_metrics(*value_update_tuples: tuple[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Return the values and the update ops of several metrics."""
    return [value for value, _ in value_update_tuples], [update for _, update in value_update_tuples]


def aggregate_metric_map(names_to_tuples: dict[str, tuple[Any, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values and the update ops of several metrics, by name."""
    values = {name: value for name, (value, _) in names_to_tuples.items()}
    return values, {name: update for name, (_, update) in names_to_tuples.items()}


__getattr__ = finder_in("tf.contrib.metrics", __all__, optional="tf_slim.metrics")
