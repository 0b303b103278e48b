"""Pooling over windows of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk.layers.geometry import ImageLayout, padding_of, require_window_fits
from tpk.layers.layer_scope import LayerScope, Pair, open_layer


def max_pooling2d(
    inputs: Any,
    pool_size: Pair,
    strides: Pair,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Take the maximum of each window.

    Args:
        inputs: images of shape [batch, height, width, channels], or, with channels first, [batch, channels,
            height, width].
        pool_size: (height, width) of the window, or one integer for both.
        strides: how far windows are apart, by (height, width), or one integer for both.
        padding: ``"valid"`` (none) or ``"same"``.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        name: the name scope of the op; None means ``max_pooling2d``. It is made unique.

    Returns:
        The pooled images, in the layout of the inputs.

    Raises:
        ConfigError: if an argument, or the shape of the inputs, cannot be; it names the layer.
    """
    with open_layer("max_pooling2d", inputs, default_name=name) as layer:
        return _pool(tf.compat.v1.nn.max_pool, layer, pool_size, strides, padding, data_format)


def average_pooling2d(
    inputs: Any,
    pool_size: Pair,
    strides: Pair,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Take the mean of each window, in which padding does not count.

    Arguments, result and errors are those of `max_pooling2d`; the default name is ``average_pooling2d``.
    """
    with open_layer("average_pooling2d", inputs, default_name=name) as layer:
        return _pool(tf.compat.v1.nn.avg_pool, layer, pool_size, strides, padding, data_format)


def _pool(
    pool: Callable[..., Any],
    layer: LayerScope,
    pool_size: Pair,
    strides: Pair,
    padding: str,
    data_format: str,
) -> Any:
    layout = ImageLayout.of_images(layer, data_format)
    padding = padding_of(layer, padding)
    window = layer.pair_of("pool_size", pool_size)
    stride = layer.pair_of("strides", strides)
    require_window_fits(layer, layout, window, padding)
    return pool(
        layer.inputs,
        layout.arrange(1, window, 1),
        layout.arrange(1, stride, 1),
        padding,
        data_format=layout.tensor_format,
    )
