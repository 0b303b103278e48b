"""Functions of tensors."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

__all__ = ["print_stat", "rms"]


def print_stat(x: Any, message: str | None = None) -> Any:
    """Return `x`; print its shape, mean and maximum to standard error when it is computed.

    Args:
        x: a tensor.
        message: the text to print first; by default the name of the tensor.
    """
    shown = [message or x.op.name, "shape:", tf.shape(x), "mean:", tf.reduce_mean(x), "max:", tf.reduce_max(x)]
    with tf.control_dependencies([tf.print(*shown, output_stream=sys.stderr)]):
        return tf.identity(x)


def rms(x: Any, name: str | None = None) -> Any:
    """Return the root mean square of `x`, by default named ``<x>/rms``."""
    if name is None:
        with tf.name_scope(""):
            return rms(x, f"{x.op.name}/rms")
    return tf.sqrt(tf.reduce_mean(tf.square(x)), name=name)


def psnr(prediction: Any, ground_truth: Any, maxp: float | None = None, name: str = "psnr") -> Any:
    """Return the peak signal-to-noise ratio of `prediction`, in decibels.

    Args:
        prediction: a tensor.
        ground_truth: the expected tensor.
        maxp: the largest possible value; None for 1.
        name: the name of the result.
    """
    peak = 1.0 if maxp is None else float(maxp)
    mean_square = tf.reduce_mean(tf.math.squared_difference(prediction, ground_truth))
    decibels = -10.0 / tf.math.log(10.0) * tf.math.log(mean_square / peak**2)
    return tf.identity(decibels, name=name)


# From scripts of 0.1 to 0.8:


def flatten(x: Any) -> Any:
    """Return the elements of `x` as a vector."""
    return tf.reshape(x, [-1])


def prediction_incorrect(logits: Any, label: Any, topk: int = 1, name: str = "incorrect_vector") -> Any:
    """Return 1.0 for each example whose label is not among the `topk` largest logits, else 0.0.

    Args:
        logits: a float tensor of shape [batch, classes].
        label: an integer tensor of shape [batch].
        topk: the number of predictions to look at.
        name: the name of the result, a float32 tensor of shape [batch].
    """
    return tf.cast(tf.logical_not(tf.compat.v1.nn.in_top_k(logits, label, topk)), tf.float32, name=name)


def accuracy(logits: Any, label: Any, topk: int = 1, name: str = "accuracy") -> Any:
    """Return the fraction of examples whose label is among the `topk` largest logits; see `prediction_incorrect`."""
    correct = tf.cast(tf.compat.v1.nn.in_top_k(logits, label, topk), tf.float32)
    return tf.reduce_mean(correct, name=name)


def huber_loss(x: Any, delta: float = 1.0, name: str = "huber_loss") -> Any:
    """Return ``x**2 / 2`` for elements of at most `delta` in absolute value, else ``delta * (abs(x) - delta / 2)``.

    Source: P. J. Huber, Robust Estimation of a Location Parameter, Annals of Mathematical Statistics 35 (1964).
    """
    size = tf.abs(x)
    return tf.where(size < delta, tf.square(x) / 2, delta * (size - delta / 2), name=name)


def batch_flatten(x: Any) -> Any:
    """Flatten all dimensions of `x` except the first, the batch dimension."""
    return tf.reshape(x, [-1, x.shape[1:].num_elements() or tf.reduce_prod(tf.shape(x)[1:])])


def get_scalar_var(name: str, init_value: float, summary: bool = False, trainable: bool = False) -> Any:
    """Return a scalar float variable.

    Args:
        name: the name of the variable.
        init_value: its initial value.
        summary: whether to summarize it as ``<name>-summary``.
        trainable: whether it is trained.
    """
    variable = tf.compat.v1.get_variable(name, initializer=float(init_value), trainable=trainable)
    if summary:
        tf.compat.v1.summary.scalar(f"{name}-summary", variable)
    return variable


def shapeless_placeholder(x: Any, axis: int | list[int], name: str) -> Any:
    """Return a placeholder that defaults to `x`, with some dimensions of its shape unknown.

    Args:
        x: a tensor.
        axis: the dimensions that may be fed with other sizes.
        name: the name of the placeholder.

    Raises:
        ValueError: the size of one of these dimensions is already unknown.
    """
    shape = x.shape.as_list()
    for each in axis if isinstance(axis, list) else [axis]:
        if shape[each] is None:
            raise ValueError(
                f"shapeless_placeholder: dimension {each} of shape {shape} is unknown already; leave it out"
            )
        shape[each] = None
    return tf.compat.v1.placeholder_with_default(x, shape, name)
