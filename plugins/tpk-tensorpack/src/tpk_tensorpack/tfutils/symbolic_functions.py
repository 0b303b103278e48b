"""Functions of tensors."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

__all__ = ["print_stat", "rms"]


def print_stat(x: Any, message: str | None = None) -> Any:
    """Return `x`; its shape, mean and greatest element are printed to the standard error when it is computed.

    Args:
        x: a tensor.
        message: what to print first; by default the name of the tensor.
    """
    shown = [message or x.op.name, "shape:", tf.shape(x), "mean:", tf.reduce_mean(x), "max:", tf.reduce_max(x)]
    with tf.control_dependencies([tf.print(*shown, output_stream=sys.stderr)]):
        return tf.identity(x)


def rms(x: Any, name: str | None = None) -> Any:
    """Return the root mean square of `x`; by default it is called after it, ``<x>/rms``."""
    if name is None:
        name = f"{x.op.name}/rms"
        with tf.name_scope(""):
            return tf.sqrt(tf.reduce_mean(tf.square(x)), name=name)
    return tf.sqrt(tf.reduce_mean(tf.square(x)), name=name)


def psnr(prediction: Any, ground_truth: Any, maxp: float | None = None, name: str = "psnr") -> Any:
    """Return the peak signal-to-noise ratio of `prediction`, in decibels.

    Args:
        prediction: a tensor.
        ground_truth: what it should be.
        maxp: the largest value that there may be; None for 1.
        name: of the result.
    """
    peak = 1.0 if maxp is None else float(maxp)
    mean_square = tf.reduce_mean(tf.math.squared_difference(prediction, ground_truth))
    decibels = -10.0 / tf.math.log(10.0) * tf.math.log(mean_square / peak**2)
    return tf.identity(decibels, name=name)
