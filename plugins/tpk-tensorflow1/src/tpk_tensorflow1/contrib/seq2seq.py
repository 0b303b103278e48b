"""`tf.contrib.seq2seq`: the loss of sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as _tf

from tpk_tensorflow1.missing import finder_in

__all__ = ["sequence_loss"]


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
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
        softmax_loss_function: a function of ``labels`` and ``logits``; by default the sparse softmax cross entropy.
        name: the name scope.

    Returns:
        A scalar, or a tensor of shape [time], [batch] or [batch, time], depending on the averages.
    """
    entropy = softmax_loss_function or _tf.compat.v1.nn.sparse_softmax_cross_entropy_with_logits
    with _tf.name_scope(name or "sequence_loss"):
        classes = _tf.shape(logits)[2]
        flat = _tf.reshape(targets, [-1])
        losses = entropy(labels=flat, logits=_tf.reshape(logits, [-1, classes]))
        losses = _tf.reshape(losses * _tf.reshape(weights, [-1]), _tf.shape(logits)[:2])
        axes = [axis for axis, average in enumerate((average_across_batch, average_across_timesteps)) if average]
        if not axes:
            return losses
        # The small number avoids a division by zero if all weights are zero.
        return _tf.reduce_sum(losses, axes) / (_tf.reduce_sum(weights, axes) + 1e-12)


__getattr__ = finder_in("tf.contrib.seq2seq", __all__)
