"""Convolutions of sequences, images and volumes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.layers.geometry import ConvolutionGeometry, require_window_fits
from tpk.layers.layer_scope import ZEROS, Function, LayerScope, Sizes, open_layer


def conv1d(
    inputs: Any,
    filters: int,
    kernel_size: Sizes,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = 1,
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
    """Convolve sequences with a kernel (in fact a cross-correlation).

    Variables: ``kernel`` of shape [length, channels, filters], and ``bias`` of shape [filters].

    The inputs are of shape [batch, length, channels], or, with channels first, [batch, channels, length]. Sizes are one
    integer, or a tuple of one. `padding` may also be ``"causal"``: zeros before the sequence only, so that an output
    depends on no later input (van den Oord et al., 2016, https://arxiv.org/abs/1609.03499). The other arguments, the
    result and the errors are those of `conv2d`; the default name is ``conv1d``.

    Example:
        ```python
        x = conv1d(embedded_words, 64, 3, padding="causal", dilation_rate=2, activation=tf.nn.relu)
        ```
    """
    with open_layer("conv1d", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(
            layer, 1, kernel_size, strides, padding, data_format, dilation_rate, may_be_causal=True
        )
        filters = layer.count_of("filters", filters)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, geometry.channels, filters],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = _convolve(layer, geometry, kernel, filters)
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Sizes,
    strides: Sizes = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = (1, 1),
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
        geometry = ConvolutionGeometry.of(layer, 2, kernel_size, strides, padding, data_format, dilation_rate)
        filters = layer.count_of("filters", filters)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, geometry.channels, filters],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = _convolve(layer, geometry, kernel, filters)
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def conv3d(
    inputs: Any,
    filters: int,
    kernel_size: Sizes,
    strides: Sizes = (1, 1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sizes = (1, 1, 1),
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
    """Convolve volumes with a kernel (in fact a cross-correlation).

    Variables: ``kernel`` of shape [depth, height, width, channels, filters], and ``bias`` of shape [filters].

    The inputs are of shape [batch, depth, height, width, channels], or, with channels first, [batch, channels, depth,
    height, width]; TensorFlow has kernels for the latter on GPUs only. Sizes are (depth, height, width), or one integer
    for all. The other arguments, the result and the errors are those of `conv2d`; the default name is ``conv3d``.

    Example:
        ```python
        x = conv3d(video, 16, (3, 5, 5), strides=(1, 2, 2), padding="same")
        ```
    """
    with open_layer("conv3d", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(layer, 3, kernel_size, strides, padding, data_format, dilation_rate)
        filters = layer.count_of("filters", filters)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, geometry.channels, filters],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = _convolve(layer, geometry, kernel, filters)
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def _convolve(layer: LayerScope, geometry: ConvolutionGeometry, kernel: Any, filters: int) -> Any:
    inputs, geometry = geometry.padded_causally(layer.inputs)
    outputs = tf.nn.convolution(
        inputs,
        kernel,
        strides=geometry.strides,
        padding=geometry.padding,
        data_format=geometry.layout.tensor_format,
        dilations=geometry.dilation_rate,
        name=f"Conv{geometry.layout.spatial_rank}D",
    )
    # A dilated convolution forgets a known size if another one is unknown.
    outputs.set_shape(geometry.output_shape(inputs, filters))
    return outputs
