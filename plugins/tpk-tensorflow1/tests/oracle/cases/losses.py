import numpy as np
import tensorflow as tf
from tensorflow.contrib import losses, metrics, slim


def _batch():
    random = np.random.RandomState(0)
    predictions = tf.constant(random.rand(5, 4).astype(np.float32))
    labels = tf.constant((random.rand(5, 4) > 0.5).astype(np.float32))
    return predictions, labels, tf.constant(random.rand(5, 1).astype(np.float32)), tf.constant([0, 3, 1, 1, 2])


def losses_of_contrib():
    predictions, labels, weights, classes = _batch()
    computed = [
        losses.absolute_difference(predictions, labels),
        losses.absolute_difference(predictions, labels=labels, weights=weights, scope="weighted"),
        losses.cosine_distance(predictions, labels, dim=1),
        losses.hinge_loss(predictions, labels),
        losses.log_loss(predictions, labels, weights, 1e-3),
        losses.mean_squared_error(predictions, labels, 0.5),
        losses.sigmoid_cross_entropy(predictions, labels, label_smoothing=0.1),
        slim.losses.softmax_cross_entropy(predictions, labels),
        slim.losses.softmax_cross_entropy(logits=predictions, onehot_labels=labels, weights=2.0),
        losses.sparse_softmax_cross_entropy(predictions, classes),
        losses.compute_weighted_loss(predictions, 2.0),
    ]
    losses.add_loss(tf.constant(1.0))
    tf.get_variable("regularized", [2], regularizer=slim.l2_regularizer(0.5))
    return {
        "losses": computed,
        "added": losses.get_losses(),
        "regularization": tf.add_n(losses.get_regularization_losses()),
        "total": slim.losses.get_total_loss(),
        "total, not regularized": losses.get_total_loss(add_regularization_losses=False),
    }


def metrics_of_contrib():
    predictions, labels, weights, classes = _batch()
    found = tf.cast(predictions > 0.5, tf.float32)
    chosen = tf.argmax(predictions, 1)
    values, updates = metrics.aggregate_metric_map(
        {
            "accuracy": metrics.streaming_accuracy(chosen, classes),
            "weighted accuracy": slim.metrics.streaming_accuracy(found, labels, weights),
            "auc": metrics.streaming_auc(predictions, labels, curve="PR"),
            "false negatives": metrics.streaming_false_negatives(found, labels),
            "mean": metrics.streaming_mean(predictions, weights),
            "mean of each": metrics.streaming_mean_tensor(predictions),
            "absolute error": metrics.streaming_mean_absolute_error(predictions, labels),
            "cosine distance": metrics.streaming_mean_cosine_distance(predictions, labels, 1),
            "iou": metrics.streaming_mean_iou(chosen, classes, 4),
            "relative error": metrics.streaming_mean_relative_error(predictions, labels, labels + 1),
            "less": metrics.streaming_percentage_less(predictions, 0.5),
            "precision": metrics.streaming_precision(found, labels),
            "precision at": metrics.streaming_precision_at_thresholds(predictions, labels, [0.3, 0.6]),
            "precision at k": metrics.streaming_sparse_precision_at_k(predictions, tf.cast(classes, tf.int64), 2),
            "average precision": metrics.streaming_sparse_average_precision_at_k(
                predictions, tf.cast(classes[:, None], tf.int64), 2
            ),
            "recall": metrics.streaming_recall(labels=labels, predictions=found),
            "recall at": metrics.streaming_recall_at_thresholds(predictions, labels, [0.3, 0.6]),
            "recall at k": metrics.streaming_sparse_recall_at_k(predictions, tf.cast(classes, tf.int64), 2, class_id=1),
            "rmse": metrics.streaming_root_mean_squared_error(predictions, labels),
            "sensitivity": metrics.streaming_sensitivity_at_specificity(predictions, labels, 0.5),
        }
    )
    with tf.control_dependencies(list(updates.values())):
        done = tf.constant(0.0)
    return {
        "updates": updates,
        "done": done,
        "number": len(values),
        "accuracy": metrics.accuracy(chosen, tf.cast(classes, tf.int64)),
        "weighted": metrics.accuracy(found > 0, labels > 0, weights),
        "confusion": metrics.confusion_matrix(classes, chosen, num_classes=5),
        "sets": [metrics.set_size(metrics.set_intersection([[1, 2, 3]], [[2, 3, 4]])), len(tf.local_variables())],
        "aggregated": len(metrics.aggregate_metrics((1, 2), (3, 4), (5, 6))[0]),
    }
