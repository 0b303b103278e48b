"""The loss of sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["sequence_loss"]


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return the weighted cross entropy of sequences of logits.

    Args:
        logits: a tensor of shape [batch, time, classes].
        targets: an integer tensor of shape [batch, time].
        weights: a float tensor of shape [batch, time].
        average_across_timesteps: whether to take the weighted mean over time.
        average_across_batch: whether to take the weighted mean over the batch.
        sum_over_timesteps: whether to take the sum over time, divided by the number of weights that are not zero.
        sum_over_batch: whether to take the sum over the batch, divided likewise.
        softmax_loss_function: a function of ``labels`` and ``logits``; by default the sparse softmax cross entropy.
        name: the name scope.

    Returns:
        A scalar, or a tensor of shape [time], [batch] or [batch, time], depending on the means and sums.
    """
    entropy = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
    with tf.name_scope(name or "sequence_loss"):
        flat = tf.reshape(logits, [-1, tf.shape(logits)[2]])
        losses = tf.reshape(entropy(labels=tf.reshape(targets, [-1]), logits=flat), tf.shape(logits)[:2]) * weights
        averaged = [axis for axis, mean in enumerate((average_across_batch, average_across_timesteps)) if mean]
        summed = [axis for axis, total in enumerate((sum_over_batch, sum_over_timesteps)) if total]
        if not averaged and not summed:
            return losses
        # The small number avoids a division by zero if all weights are zero.
        if averaged:
            return tf.reduce_sum(losses, averaged) / (tf.reduce_sum(weights, averaged) + 1e-12)
        count = tf.math.count_nonzero(weights, summed, dtype=losses.dtype)
        return tf.reduce_sum(losses, summed) / (count + 1e-12)
