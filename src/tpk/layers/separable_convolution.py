"""Convolutions of each channel by itself: depthwise ones, and separable ones, which mix the channels afterwards."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.geometry import ConvolutionGeometry, require_window_fits
from tpk.layers.layer_scope import ZEROS, Function, Sizes, open_layer


def depthwise_conv2d(
    inputs: Any,
    kernel_size: Sizes,
    strides: Sizes = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = (1, 1),
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

    It has no counterpart in `tf.compat.v1.layers`, and computes what `tf.keras.layers.DepthwiseConv2D` does. The
    arguments are those of `separable_conv2d` without what the pointwise convolution takes, and so are the errors; the
    default name is ``depthwise_conv2d``.

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
        depthwise_kernel = layer.variable(
            "depthwise_kernel",
            [*geometry.kernel_size, geometry.channels, depth_multiplier],
            initializer=depthwise_initializer,
            regularizer=depthwise_regularizer,
            constraint=depthwise_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
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


def separable_conv1d(
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
    """Convolve each channel by itself, then mix the channels of each element of the sequence.

    Variables: ``depthwise_kernel`` of shape [length, channels, depth_multiplier], ``pointwise_kernel`` of shape [1,
    channels * depth_multiplier, filters], and ``bias`` of shape [filters].

    The inputs, `kernel_size`, `strides`, `padding` (it may be ``"causal"``) and `dilation_rate` are as for `conv1d`.
    The other arguments, the result and the errors are those of `separable_conv2d`; the default name is
    ``separable_conv1d``.

    Example:
        ```python
        x = separable_conv1d(spectrogram, 64, 9, padding="same", activation=tf.nn.relu)
        ```
    """
    with open_layer("separable_conv1d", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(
            layer, 1, kernel_size, strides, padding, data_format, dilation_rate, may_be_causal=True
        )
        filters = layer.count_of("filters", filters)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        depth_multiplier = layer.count_of("depth_multiplier", depth_multiplier)
        depthwise_kernel = layer.variable(
            "depthwise_kernel",
            [*geometry.kernel_size, geometry.channels, depth_multiplier],
            initializer=depthwise_initializer,
            regularizer=depthwise_regularizer,
            constraint=depthwise_constraint,
            trainable=trainable,
        )
        pointwise_kernel = layer.variable(
            "pointwise_kernel",
            [1, geometry.channels * depth_multiplier, filters],
            initializer=pointwise_initializer,
            regularizer=pointwise_regularizer,
            constraint=pointwise_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        inputs, geometry = geometry.padded_causally(layer.inputs)
        # Images of height 1, whose axis stands first of the spatial ones.
        axis = geometry.layout.spatial_axes[0]
        inputs, depthwise_kernel, pointwise_kernel = (
            tf.expand_dims(inputs, axis),
            tf.expand_dims(depthwise_kernel, 0),
            tf.expand_dims(pointwise_kernel, 0),
        )
        images = attrs.evolve(geometry.layout, spatial_rank=2)
        outputs = tf.nn.separable_conv2d(
            inputs,
            depthwise_kernel,
            pointwise_kernel,
            images.arrange(1, geometry.strides * 2, 1),
            padding=geometry.padding,
            data_format=images.tensor_format,
            dilations=(1, *geometry.dilation_rate),
        )
        if bias is not None:
            outputs = tf.nn.bias_add(outputs, bias, data_format=images.tensor_format)
        return layer.finish(tf.squeeze(outputs, [axis]), activation, activity_regularizer)


def separable_conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Sizes,
    strides: Sizes = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = (1, 1),
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
    """Convolve each channel by itself, then mix the channels of each pixel.

    Variables: ``depthwise_kernel`` of shape [height, width, channels, depth_multiplier],
    ``pointwise_kernel`` of shape [1, 1, channels * depth_multiplier, filters], and ``bias`` of shape
    [filters].

    Args:
        inputs: as for `conv2d`.
        filters: how many channels the outputs have.
        kernel_size: (height, width) of the depthwise kernel, or one integer for both.
        strides: as for `conv2d`, but TensorFlow's kernel wants the same for height and width.
        padding: as for `conv2d`.
        data_format: as for `conv2d`.
        dilation_rate: as for `conv2d`, for the depthwise kernel.
        depth_multiplier: how many outputs the depthwise convolution has for each channel.
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
        name: as for `conv2d`; None means ``separable_conv2d``, made unique.
        reuse: as for `conv2d`.

    Returns:
        The outputs, in the layout of the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be; it names the layer.
    """
    with open_layer("separable_conv2d", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(layer, 2, kernel_size, strides, padding, data_format, dilation_rate)
        filters = layer.count_of("filters", filters)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        depth_multiplier = layer.count_of("depth_multiplier", depth_multiplier)
        depthwise_kernel = layer.variable(
            "depthwise_kernel",
            [*geometry.kernel_size, geometry.channels, depth_multiplier],
            initializer=depthwise_initializer,
            regularizer=depthwise_regularizer,
            constraint=depthwise_constraint,
            trainable=trainable,
        )
        pointwise_kernel = layer.variable(
            "pointwise_kernel",
            [1, 1, geometry.channels * depth_multiplier, filters],
            initializer=pointwise_initializer,
            regularizer=pointwise_regularizer,
            constraint=pointwise_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = tf.nn.separable_conv2d(
            layer.inputs,
            depthwise_kernel,
            pointwise_kernel,
            geometry.layout.arrange(1, geometry.strides, 1),
            padding=geometry.padding,
            data_format=geometry.layout.tensor_format,
            dilations=geometry.dilation_rate,
        )
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)
