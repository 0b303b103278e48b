"""Pooling over windows, or over all, of sequences, images and volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.geometry import SpatialLayout, padding_of, require_window_fits
from tpk.layers.layer_scope import LayerScope, Sizes, open_layer


def max_pooling2d(
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes,
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

    Example:
        ```python
        x = max_pooling2d(x, pool_size=2, strides=2)
        ```
    """
    with open_layer("max_pooling2d", inputs, default_name=name) as layer:
        return _pool(layer, tf.compat.v1.nn.max_pool, 2, pool_size, strides, padding, data_format)


def average_pooling2d(
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Take the mean of each window, in which padding does not count.

    Arguments, result and errors are those of `max_pooling2d`; the default name is ``average_pooling2d``.
    """
    with open_layer("average_pooling2d", inputs, default_name=name) as layer:
        return _pool(layer, tf.compat.v1.nn.avg_pool, 2, pool_size, strides, padding, data_format)


def max_pooling1d(
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Take the maximum of each window of sequences.

    The inputs are of shape [batch, length, channels], or, with channels first, [batch, channels, length]; the latter
    are transposed, and the outputs back. Sizes are one integer, or a tuple of one. The other arguments, the result
    and the errors are those of `max_pooling2d`; the default name is ``max_pooling1d``.

    Example:
        ```python
        x = max_pooling1d(spectrogram, pool_size=4, strides=4)
        ```
    """
    with open_layer("max_pooling1d", inputs, default_name=name) as layer:
        return _pool(layer, tf.compat.v1.nn.max_pool, 1, pool_size, strides, padding, data_format)


def average_pooling1d(
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Take the mean of each window of sequences, in which padding does not count.

    The inputs are of shape [batch, length, channels], or, with channels first, [batch, channels, length]; the latter
    are transposed, and the outputs back. Sizes are one integer, or a tuple of one. The other arguments, the result
    and the errors are those of `max_pooling2d`; the default name is ``average_pooling1d``.
    """
    with open_layer("average_pooling1d", inputs, default_name=name) as layer:
        return _pool(layer, tf.compat.v1.nn.avg_pool, 1, pool_size, strides, padding, data_format)


def max_pooling3d(
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Take the maximum of each window of volumes.

    The inputs are of shape [batch, depth, height, width, channels], or, with channels first, [batch, channels, depth,
    height, width]; the latter are transposed, and the outputs back. Sizes are (depth, height, width), or one integer
    for all. The other arguments, the result and the errors are those of `max_pooling2d`; the default name is
    ``max_pooling3d``.

    Example:
        ```python
        x = max_pooling3d(video, pool_size=(1, 2, 2), strides=(1, 2, 2))
        ```
    """
    with open_layer("max_pooling3d", inputs, default_name=name) as layer:
        return _pool(layer, tf.compat.v1.nn.max_pool3d, 3, pool_size, strides, padding, data_format)


def average_pooling3d(
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    """Take the mean of each window of volumes, in which padding does not count.

    The inputs are of shape [batch, depth, height, width, channels], or, with channels first, [batch, channels, depth,
    height, width]; the latter are transposed, and the outputs back. Sizes are (depth, height, width), or one integer
    for all. The other arguments, the result and the errors are those of `max_pooling2d`; the default name is
    ``average_pooling3d``.
    """
    with open_layer("average_pooling3d", inputs, default_name=name) as layer:
        return _pool(layer, tf.compat.v1.nn.avg_pool3d, 3, pool_size, strides, padding, data_format)


def global_max_pooling(
    inputs: Any, data_format: str = "channels_last", keepdims: bool = False, name: str | None = None
) -> Any:
    """Take the maximum of each channel, over all of a sequence, an image or a volume.

    Args:
        inputs: a tensor of shape [batch, ..., channels], or, with channels first, [batch, channels, ...], with one to
            three axes between.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        keepdims: whether these axes stay, with size 1.
        name: the name scope of the op; None means ``global_max_pooling``. It is made unique.

    Returns:
        A tensor of shape [batch, channels], or of the rank of the inputs with `keepdims`.

    Raises:
        ConfigError: if `data_format`, or the rank of the inputs, cannot be; it names the layer.

    Example:
        ```python
        logits = dense(global_max_pooling(x), 10)
        ```
    """
    with open_layer("global_max_pooling", inputs, default_name=name) as layer:
        return tf.reduce_max(layer.inputs, _spatial_axes(layer, data_format), keepdims)


def global_average_pooling(
    inputs: Any, data_format: str = "channels_last", keepdims: bool = False, name: str | None = None
) -> Any:
    """Take the mean of each channel, over all of a sequence, an image or a volume.

    It is what tensorpack's ``GlobalAvgPooling`` and Keras' ``GlobalAveragePooling2D`` compute (Lin et al., 2013,
    https://arxiv.org/abs/1312.4400). Arguments, result and errors are those of `global_max_pooling`; the default name
    is ``global_average_pooling``.

    Example:
        ```python
        logits = dense(global_average_pooling(x), 10)
        ```
    """
    with open_layer("global_average_pooling", inputs, default_name=name) as layer:
        return tf.reduce_mean(layer.inputs, _spatial_axes(layer, data_format), keepdims)


def _spatial_axes(layer: LayerScope, data_format: str) -> list[int]:
    channels_first = layer.is_channels_first(data_format)
    rank = layer.known_rank(3, "(batch, ..., channels)")
    return SpatialLayout(channels_first, rank - 2).spatial_axes


def _pool(
    layer: LayerScope,
    pool: Callable[..., Any],
    spatial_rank: int,
    pool_size: Sizes,
    strides: Sizes,
    padding: str,
    data_format: str,
) -> Any:
    layout = SpatialLayout.of_inputs(layer, data_format, spatial_rank)
    padding = padding_of(layer, padding)
    window = layer.sizes_of("pool_size", pool_size, spatial_rank)
    stride = layer.sizes_of("strides", strides, spatial_rank)
    require_window_fits(layer, layout, window, padding)
    images = layout
    values = layer.inputs
    if spatial_rank == 1:
        # A sequence is an image of width 1.
        images = attrs.evolve(layout, spatial_rank=2)
        values, window, stride = tf.expand_dims(values, images.spatial_axes[1]), (*window, 1), (*stride, 1)
    computed = images
    if spatial_rank != 2:
        # TensorFlow pools volumes with channels first on no device, and images on GPUs only.
        computed, values = attrs.evolve(images, channels_first=False), images.to_channels_last(values)
    outputs = pool(
        values,
        computed.arrange(1, window, 1),
        computed.arrange(1, stride, 1),
        padding,
        data_format=computed.tensor_format,
    )
    if spatial_rank != 2:
        outputs = images.from_channels_last(outputs)
    return tf.squeeze(outputs, [images.spatial_axes[1]]) if spatial_rank == 1 else outputs
