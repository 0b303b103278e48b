"""Convolutions of images."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.geometry import ConvolutionGeometry, ImageLayout, require_window_fits
from tpk.layers.layer_scope import ZEROS, Function, Pair, open_layer


def conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Pair,
    strides: Pair = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Pair = (1, 1),
    activation: Function | str | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = ZEROS,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    activity_regularizer: Function | None = None,
    kernel_constraint: Function | None = None,
    bias_constraint: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Convolve images with a kernel (in fact a cross-correlation).

    Variables: ``kernel`` of shape [height, width, channels, filters], and ``bias`` of shape [filters].

    Args:
        inputs: floating-point images of shape [batch, height, width, channels], or, with channels first,
            [batch, channels, height, width]; the number of channels must be known.
        filters: how many channels the outputs have.
        kernel_size: (height, width) of the kernel, or one integer for both.
        strides: how far windows are apart, by (height, width), or one integer for both.
        padding: ``"valid"`` (none) or ``"same"``.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        dilation_rate: how far elements of the kernel are apart, by (height, width), or one integer for both;
            not together with strides.
        activation: a function, or its name in `tf.nn`; None is linear.
        use_bias: whether to add a bias.
        kernel_initializer: an initializer or its name; None means the enclosing variable scope's, and where
            that has none, Glorot-uniform.
        bias_initializer: an initializer or its name.
        kernel_regularizer: maps the kernel to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        bias_regularizer: the same for the bias.
        activity_regularizer: the same for the outputs; the loss is divided by the batch size.
        kernel_constraint: maps the kernel to its projection after an optimizer's update.
        bias_constraint: the same for the bias.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None means ``conv2d``, made unique: ``conv2d_1``, ...
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        The outputs, in the layout of the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be; it names the layer.

    Example:
        ```python
        x = conv2d(image, 32, 3, padding="same", activation=tf.nn.relu)
        x = conv2d(x, 64, (3, 1), strides=2, use_bias=False, name="narrow")
        ```
    """
    with open_layer("conv2d", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(layer, filters, kernel_size, strides, padding, data_format, dilation_rate)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, geometry.channels, geometry.filters],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = layer.bias(geometry.filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = tf.nn.convolution(
            layer.inputs,
            kernel,
            strides=geometry.strides,
            padding=geometry.padding,
            data_format=geometry.layout.tensor_format,
            dilations=geometry.dilation_rate,
            name="Conv2D",
        )
        # A dilated convolution forgets a known height if the width is unknown, and the other way round.
        outputs.set_shape(geometry.output_shape(layer.inputs))
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def conv2d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Pair,
    strides: Pair = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    activation: Function | str | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = ZEROS,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    activity_regularizer: Function | None = None,
    kernel_constraint: Function | None = None,
    bias_constraint: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Convolve images with the transpose of a convolution, which is its gradient: strides enlarge them.

    Variables: ``kernel`` of shape [height, width, filters, channels], and ``bias`` of shape [filters].

    Args:
        inputs: as for `conv2d`.
        filters: how many channels the outputs have.
        kernel_size: (height, width) of the kernel, or one integer for both.
        strides: how far windows are apart in the outputs, by (height, width), or one integer for both.
        padding: ``"same"`` makes the outputs `strides` times as large as the inputs, ``"valid"`` adds to
            that what the kernel reaches over.
        data_format: as for `conv2d`. On machines without a GPU, channels-first images are transposed, and the
            outputs back, as `tf.compat.v1.layers` does.
        activation: as for `conv2d`.
        use_bias: as for `conv2d`.
        kernel_initializer: as for `conv2d`.
        bias_initializer: as for `conv2d`.
        kernel_regularizer: as for `conv2d`.
        bias_regularizer: as for `conv2d`.
        activity_regularizer: as for `conv2d`.
        kernel_constraint: as for `conv2d`.
        bias_constraint: as for `conv2d`.
        trainable: as for `conv2d`.
        name: as for `conv2d`; None means ``conv2d_transpose``, made unique.
        reuse: as for `conv2d`.

    Returns:
        The outputs, in the layout of the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be; it names the layer.
    """
    with open_layer("conv2d_transpose", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(layer, filters, kernel_size, strides, padding, data_format)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, geometry.filters, geometry.channels],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = layer.bias(geometry.filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = _convolve_transposed(layer.inputs, kernel, geometry)
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def separable_conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Pair,
    strides: Pair = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Pair = (1, 1),
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
        geometry = ConvolutionGeometry.of(layer, filters, kernel_size, strides, padding, data_format, dilation_rate)
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
            [1, 1, geometry.channels * depth_multiplier, geometry.filters],
            initializer=pointwise_initializer,
            regularizer=pointwise_regularizer,
            constraint=pointwise_constraint,
            trainable=trainable,
        )
        bias = layer.bias(geometry.filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
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


def _convolve_transposed(inputs: Any, kernel: Any, geometry: ConvolutionGeometry) -> Any:
    if geometry.layout.channels_first and not tf.config.list_physical_devices("GPU"):
        channels_last = attrs.evolve(geometry, layout=ImageLayout(channels_first=False))
        outputs = _convolve_transposed(tf.transpose(inputs, [0, 2, 3, 1]), kernel, channels_last)
        return tf.transpose(outputs, [0, 3, 1, 2])
    output_shape = geometry.dynamic_transposed_output_shape(inputs)
    # Nobody needs this slice, but `tf.compat.v1.layers` makes it, and ops without a seed of their own take
    # the number of ops before them: without it, later layers would start from other values.
    _ = output_shape[0]
    outputs = tf.nn.conv2d_transpose(
        inputs,
        kernel,
        output_shape,
        geometry.layout.arrange(1, geometry.strides, 1),
        padding=geometry.padding,
        data_format=geometry.layout.tensor_format,
    )
    outputs.set_shape(geometry.transposed_output_shape(inputs))
    return outputs
