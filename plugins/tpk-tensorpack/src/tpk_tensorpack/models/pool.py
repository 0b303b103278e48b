"""Pooling of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk import layers
from tpk_tensorpack.models.registry import layer_register
from tpk_tensorpack.models.tflayer import convert_to_tflayer_args
from tpk_tensorpack.utils.argtools import get_data_format, shape2d

__all__ = ["AvgPooling", "FixedUnPooling", "GlobalAvgPooling", "MaxPooling"]

Shape2D = int | Sequence[int]

_OLD_NAMES = {"shape": "pool_size", "stride": "strides"}


@layer_register(log_shape=True)
@convert_to_tflayer_args(["pool_size", "strides"], _OLD_NAMES)
def MaxPooling(
    inputs: Any,
    pool_size: Shape2D,
    strides: Shape2D | None = None,
    padding: str = "valid",
    data_format: str = "channels_last",
) -> Any:
    """Return the maximum of each window, like `tf.layers.max_pooling2d`.

    Args:
        inputs: images.
        pool_size: the size of the window.
        strides: the strides of the window; by default its size.
        padding: ``"same"`` or ``"valid"``.
        data_format: ``"channels_last"`` (``"NHWC"``) or ``"channels_first"`` (``"NCHW"``).

    Returns:
        Images, named ``output``.
    """
    pooled = layers.max_pooling2d(inputs, pool_size, strides or pool_size, padding, data_format)
    return tf.identity(pooled, name="output")


@layer_register(log_shape=True)
@convert_to_tflayer_args(["pool_size", "strides"], _OLD_NAMES)
def AvgPooling(
    inputs: Any,
    pool_size: Shape2D,
    strides: Shape2D | None = None,
    padding: str = "valid",
    data_format: str = "channels_last",
) -> Any:
    """Return the mean of each window, like `tf.layers.average_pooling2d`; arguments as for `MaxPooling`."""
    pooled = layers.average_pooling2d(inputs, pool_size, strides or pool_size, padding, data_format)
    return tf.identity(pooled, name="output")


@layer_register(log_shape=True)
def GlobalAvgPooling(x: Any, data_format: str = "channels_last") -> Any:
    """Return the mean of each channel over each image, of shape [batch, channels], named ``output``."""
    axes = [1, 2] if get_data_format(data_format) == "channels_last" else [2, 3]
    return tf.reduce_mean(x, axes, name="output")


@layer_register(log_shape=True)
def FixedUnPooling(x: Any, shape: Shape2D, unpool_mat: Any = None, data_format: str = "channels_last") -> Any:
    """Enlarge images: each pixel becomes the product of the pixel and a matrix.

    Args:
        x: images.
        shape: the shape of the matrix.
        unpool_mat: the matrix; by default 1 in the upper left corner, 0 elsewhere.
        data_format: ``"channels_last"`` (``"NHWC"``) or ``"channels_first"`` (``"NCHW"``).

    Returns:
        Images enlarged by the factors in `shape`.
    """
    height, width = shape2d(shape)
    if unpool_mat is None:
        unpool_mat = np.zeros((height, width), np.float32)
        unpool_mat[0, 0] = 1
    matrix = tf.cast(tf.convert_to_tensor(unpool_mat), x.dtype)
    matrix.shape.assert_is_compatible_with([height, width])
    is_last = get_data_format(data_format) == "channels_last"
    x = x if is_last else tf.transpose(x, [0, 2, 3, 1])
    rows, columns, channels = x.shape.as_list()[1:]
    dynamic = tf.shape(x)
    large = x[:, :, None, :, None, :] * tf.reshape(matrix, [1, 1, height, 1, width, 1])
    large = tf.reshape(large, tf.stack([dynamic[0], dynamic[1] * height, dynamic[2] * width, dynamic[3]]))
    large.set_shape([None, rows and rows * height, columns and columns * width, channels])
    return large if is_last else tf.transpose(large, [0, 3, 1, 2])
