"""Depthwise convolutions, which convolve each channel by itself, and separable ones, which then mix the channels."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.geometry import ConvolutionGeometry, require_window_fits
from tpk.layers.layer_scope import ZEROS, Function, Sizes, of_rank, open_layer


def depthwise_conv2d(
    inputs: Any,
    kernel_size: Sizes,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = 1,
    depth_multiplier: int = 1,
    activation: Function | str | None = None,
    use_bias: bool = True,
    depthwise_initializer: Any = None,
    bias_initializer: Any = ZEROS,
    depthwise_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    activity_regularizer: Function | None = None,
    depthwise_constraint: Function | None = None,
    bias_constraint: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Convolve each channel by itself (Howard et al., 2017, https://arxiv.org/abs/1704.04861).

    Variables: ``depthwise_kernel`` of shape [height, width, channels, depth_multiplier], and ``bias`` of shape
    [channels * depth_multiplier].

    The layer has no counterpart in `tf.compat.v1.layers`; it computes the same as `tf.keras.layers.DepthwiseConv2D`.
    See `separable_conv2d` for the arguments and errors.

    Returns:
        The outputs, in the layout of the inputs, with channels * depth_multiplier channels.

    Example:
        ```python
        x = depthwise_conv2d(x, 3, padding="same", use_bias=False)
        x = tf.nn.relu6(batch_normalization(x, training=is_training))
        ```
    """
    with open_layer("depthwise_conv2d", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(layer, 2, kernel_size, strides, padding, data_format, dilation_rate)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        depth_multiplier = layer.count_of("depth_multiplier", depth_multiplier)
        filters = geometry.channels * depth_multiplier
        shape = [*geometry.kernel_size, geometry.channels, depth_multiplier]
        depthwise_kernel = layer.variable(
            "depthwise_kernel", shape, depthwise_initializer, depthwise_regularizer, depthwise_constraint, trainable
        )
        bias = layer.bias(filters, use_bias, (bias_initializer, bias_regularizer, bias_constraint), trainable)
        outputs = tf.nn.depthwise_conv2d(
            layer.inputs,
            depthwise_kernel,
            geometry.layout.arrange(1, geometry.strides, 1),
            padding=geometry.padding,
            data_format=geometry.layout.tensor_format,
            dilations=geometry.dilation_rate,
        )
        outputs.set_shape(geometry.output_shape(layer.inputs, filters))
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def _separable_convolution(
    kind: str,
    spatial_rank: int,
    inputs: Any,
    filters: int,
    kernel_size: Sizes,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = 1,
    depth_multiplier: int = 1,
    activation: Function | str | None = None,
    use_bias: bool = True,
    depthwise_initializer: Any = None,
    pointwise_initializer: Any = None,
    bias_initializer: Any = ZEROS,
    depthwise_regularizer: Function | None = None,
    pointwise_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    activity_regularizer: Function | None = None,
    depthwise_constraint: Function | None = None,
    pointwise_constraint: Function | None = None,
    bias_constraint: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    with open_layer(kind, inputs, name, reuse) as layer:
        is_sequence = spatial_rank == 1
        geometry = ConvolutionGeometry.of(
            layer, spatial_rank, kernel_size, strides, padding, data_format, dilation_rate, may_be_causal=is_sequence
        )
        filters = layer.count_of("filters", filters)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        depth_multiplier = layer.count_of("depth_multiplier", depth_multiplier)
        shape = [*geometry.kernel_size, geometry.channels, depth_multiplier]
        depthwise_kernel = layer.variable(
            "depthwise_kernel", shape, depthwise_initializer, depthwise_regularizer, depthwise_constraint, trainable
        )
        shape = [*[1] * spatial_rank, geometry.channels * depth_multiplier, filters]
        pointwise_kernel = layer.variable(
            "pointwise_kernel", shape, pointwise_initializer, pointwise_regularizer, pointwise_constraint, trainable
        )
        bias = layer.bias(filters, use_bias, (bias_initializer, bias_regularizer, bias_constraint), trainable)
        inputs, geometry = geometry.padded_causally(layer.inputs)
        layout, strides, dilation_rate = geometry.layout, geometry.strides, geometry.dilation_rate
        height_axis = layout.spatial_axes[0]
        if is_sequence:
            # A sequence is convolved as an image of height 1.
            inputs = tf.expand_dims(inputs, height_axis)
            depthwise_kernel = tf.expand_dims(depthwise_kernel, 0)
            pointwise_kernel = tf.expand_dims(pointwise_kernel, 0)
            layout = attrs.evolve(layout, spatial_rank=2)
            strides, dilation_rate = strides * 2, (1, *dilation_rate)
        outputs = tf.nn.separable_conv2d(
            inputs,
            depthwise_kernel,
            pointwise_kernel,
            layout.arrange(1, strides, 1),
            padding=geometry.padding,
            data_format=layout.tensor_format,
            dilations=dilation_rate,
        )
        if bias is not None:
            outputs = tf.nn.bias_add(outputs, bias, data_format=layout.tensor_format)
        if is_sequence:
            outputs = tf.squeeze(outputs, [height_axis])
        return layer.finish(outputs, activation, activity_regularizer)


@of_rank(_separable_convolution, 1)
def separable_conv1d() -> None:
    """Convolve each channel of sequences by itself, then mix the channels at each position.

    Variables: ``depthwise_kernel`` of shape [length, channels, depth_multiplier], ``pointwise_kernel`` of shape [1,
    channels * depth_multiplier, filters], and ``bias`` of shape [filters].

    The inputs, `kernel_size`, `strides`, `padding` (which may be ``"causal"``) and `dilation_rate` are as for `conv1d`.
    Otherwise, see `separable_conv2d`.

    Example:
        ```python
        x = separable_conv1d(spectrogram, 64, 9, padding="same", activation=tf.nn.relu)
        ```
    """


@of_rank(_separable_convolution, 2)
def separable_conv2d() -> None:
    """Convolve each channel of images by itself, then mix the channels of each pixel.

    Variables: ``depthwise_kernel`` of shape [height, width, channels, depth_multiplier], ``pointwise_kernel`` of shape
    [1, 1, channels * depth_multiplier, filters], and ``bias`` of shape [filters].

    Args:
        inputs: as for `conv2d`.
        filters: the number of output channels.
        kernel_size: (height, width) of the depthwise kernel, or one integer for both.
        strides: as for `conv2d`, but TensorFlow's kernel requires the same for height and width.
        padding: as for `conv2d`.
        data_format: as for `conv2d`.
        dilation_rate: as for `conv2d`, for the depthwise kernel.
        depth_multiplier: the number of outputs of the depthwise convolution for each channel.
        activation: as for `conv2d`.
        use_bias: as for `conv2d`.
        depthwise_initializer: as `kernel_initializer` of `conv2d`, for the depthwise kernel.
        pointwise_initializer: as `kernel_initializer` of `conv2d`, for the pointwise kernel.
        bias_initializer: as for `conv2d`.
        depthwise_regularizer: as `kernel_regularizer` of `conv2d`, for the depthwise kernel.
        pointwise_regularizer: as `kernel_regularizer` of `conv2d`, for the pointwise kernel.
        bias_regularizer: as for `conv2d`.
        activity_regularizer: as for `conv2d`.
        depthwise_constraint: as `kernel_constraint` of `conv2d`, for the depthwise kernel.
        pointwise_constraint: as `kernel_constraint` of `conv2d`, for the pointwise kernel.
        bias_constraint: as for `conv2d`.
        trainable: as for `conv2d`.
        name: as for `conv2d`; None for ``separable_conv2d``, made unique.
        reuse: as for `conv2d`.

    Returns:
        The outputs, in the layout of the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the layer.
    """
