"""Pooling of sequences, images and volumes: over windows, or over all positions."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.geometry import SpatialLayout, require_window_fits
from tpk.layers.layer_scope import LayerScope, Sizes, of_rank, open_layer

_POOL_OPS = {
    "max_pooling1d": tf.compat.v1.nn.max_pool,
    "max_pooling2d": tf.compat.v1.nn.max_pool,
    "max_pooling3d": tf.compat.v1.nn.max_pool3d,
    "average_pooling1d": tf.compat.v1.nn.avg_pool,
    "average_pooling2d": tf.compat.v1.nn.avg_pool,
    "average_pooling3d": tf.compat.v1.nn.avg_pool3d,
}


def _pooling(
    kind: str,
    spatial_rank: int,
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Any:
    with open_layer(kind, inputs, default_name=name) as layer:
        layout = SpatialLayout.of_inputs(layer, data_format, spatial_rank)
        padding = layer.one_of("padding", padding, ("valid", "same")).upper()
        window = layer.sizes_of("pool_size", pool_size, spatial_rank)
        stride = layer.sizes_of("strides", strides, spatial_rank)
        require_window_fits(layer, layout, window, padding)
        values = layer.inputs
        if spatial_rank == 1:
            # A sequence is pooled as an image of width 1.
            layout = attrs.evolve(layout, spatial_rank=2)
            values, window, stride = tf.expand_dims(values, layout.spatial_axes[1]), (*window, 1), (*stride, 1)
        computed = layout
        if spatial_rank != 2:
            # With channels first, TensorFlow pools volumes on no device, and images on GPUs only.
            computed, values = attrs.evolve(layout, channels_first=False), layout.to_channels_last(values)
        outputs = _POOL_OPS[kind](
            values,
            computed.arrange(1, window, 1),
            computed.arrange(1, stride, 1),
            padding,
            data_format=computed.tensor_format,
        )
        if spatial_rank != 2:
            outputs = layout.from_channels_last(outputs)
        return tf.squeeze(outputs, [layout.spatial_axes[1]]) if spatial_rank == 1 else outputs


@of_rank(_pooling, 1)
def max_pooling1d() -> None:
    """Return the maximum of each window of sequences.

    The inputs have the shape [batch, length, channels], or [batch, channels, length] with channels first; in the latter
    case they are transposed for pooling. Sizes are an integer, or a tuple of one. Otherwise, see `max_pooling2d`.

    Example:
        ```python
        x = max_pooling1d(spectrogram, pool_size=4, strides=4)
        ```
    """


@of_rank(_pooling, 2)
def max_pooling2d() -> None:
    """Return the maximum of each window of images.

    Args:
        inputs: images of shape [batch, height, width, channels], or [batch, channels, height, width] with channels
            first.
        pool_size: (height, width) of the window, or one integer for both.
        strides: the distance of windows along (height, width), or one integer for both.
        padding: ``"valid"`` (none) or ``"same"``.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        name: the name scope of the op, made unique; None for ``max_pooling2d``.

    Returns:
        The pooled images, in the layout of the inputs.

    Raises:
        ConfigError: if an argument or the shape of the inputs is invalid; it names the layer.

    Example:
        ```python
        x = max_pooling2d(x, pool_size=2, strides=2)
        ```
    """


@of_rank(_pooling, 3)
def max_pooling3d() -> None:
    """Return the maximum of each window of volumes.

    The inputs have the shape [batch, depth, height, width, channels], or [batch, channels, depth, height, width] with
    channels first; in the latter case they are transposed for pooling. Sizes are (depth, height, width), or one integer
    for all. Otherwise, see `max_pooling2d`.

    Example:
        ```python
        x = max_pooling3d(video, pool_size=(1, 2, 2), strides=(1, 2, 2))
        ```
    """


@of_rank(_pooling, 1)
def average_pooling1d() -> None:
    """Return the mean of each window of sequences, without the padding.

    See `max_pooling1d` for the inputs and the sizes, and `max_pooling2d` for the rest.
    """


@of_rank(_pooling, 2)
def average_pooling2d() -> None:
    """Return the mean of each window of images, without the padding.

    See `max_pooling2d` for the arguments.
    """


@of_rank(_pooling, 3)
def average_pooling3d() -> None:
    """Return the mean of each window of volumes, without the padding.

    See `max_pooling3d` for the inputs and the sizes, and `max_pooling2d` for the rest.
    """


def global_max_pooling(
    inputs: Any, data_format: str = "channels_last", keepdims: bool = False, name: str | None = None
) -> Any:
    """Return the maximum of each channel over a whole sequence, image or volume.

    Args:
        inputs: a tensor of shape [batch, ..., channels], or [batch, channels, ...] with channels first, with one to
            three axes in between.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        keepdims: whether to keep these axes, with size 1.
        name: the name scope of the op, made unique; None for ``global_max_pooling``.

    Returns:
        A tensor of shape [batch, channels]; with `keepdims`, of the rank of the inputs.

    Raises:
        ConfigError: if `data_format` or the rank of the inputs is invalid; it names the layer.

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
    """Return the mean of each channel over a whole sequence, image or volume.

    The same as ``GlobalAvgPooling`` of tensorpack and ``GlobalAveragePooling2D`` of Keras (Lin et al., 2013,
    https://arxiv.org/abs/1312.4400). See `global_max_pooling` for the arguments.

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
