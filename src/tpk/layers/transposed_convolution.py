"""Transposed convolutions of sequences, images and volumes."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.geometry import ConvolutionGeometry
from tpk.layers.layer_scope import ZEROS, Function, Sizes, open_layer


def conv1d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Sizes,
    strides: Sizes = 1,
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
    """Convolve sequences with the transpose of a convolution, which is its gradient: strides lengthen them.

    Variables: ``kernel`` of shape [length, filters, channels], and ``bias`` of shape [filters].

    The inputs are as for `conv1d`; sizes are one integer, or a tuple of one. The other arguments, the result and the
    errors are those of `conv2d_transpose`; the default name is ``conv1d_transpose``. It has no counterpart in
    `tf.compat.v1.layers`, and computes what `tf.keras.layers.Conv1DTranspose` does. On machines without a GPU,
    channels-first sequences are transposed, and the outputs back.

    Example:
        ```python
        wave = conv1d_transpose(features, 1, kernel_size=16, strides=8, padding="same")
        ```
    """
    with open_layer("conv1d_transpose", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(layer, 1, kernel_size, strides, padding, data_format)
        filters = layer.count_of("filters", filters)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, filters, geometry.channels],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = _convolve_sequences(layer.inputs, kernel, geometry, filters)
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def conv2d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Sizes,
    strides: Sizes = (1, 1),
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
        geometry = ConvolutionGeometry.of(layer, 2, kernel_size, strides, padding, data_format)
        filters = layer.count_of("filters", filters)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, filters, geometry.channels],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = _convolve_images(layer.inputs, kernel, geometry, filters)
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def conv3d_transpose(
    inputs: Any,
    filters: int,
    kernel_size: Sizes,
    strides: Sizes = (1, 1, 1),
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
    """Convolve volumes with the transpose of a convolution, which is its gradient: strides enlarge them.

    Variables: ``kernel`` of shape [depth, height, width, filters, channels], and ``bias`` of shape [filters].

    The inputs are as for `conv3d`; sizes are (depth, height, width), or one integer for all. The other arguments, the
    result and the errors are those of `conv2d_transpose`; the default name is ``conv3d_transpose``. TensorFlow has
    kernels for channels first on GPUs only.

    Example:
        ```python
        volume = conv3d_transpose(features, 8, 3, strides=2, padding="same", activation=tf.nn.relu)
        ```
    """
    with open_layer("conv3d_transpose", inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(layer, 3, kernel_size, strides, padding, data_format)
        filters = layer.count_of("filters", filters)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, filters, geometry.channels],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = layer.bias(filters, use_bias, bias_initializer, bias_regularizer, bias_constraint, trainable)
        outputs = _convolve_volumes(layer.inputs, kernel, geometry, filters)
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def _convolve_sequences(inputs: Any, kernel: Any, geometry: ConvolutionGeometry, filters: int) -> Any:
    last = _with_channels_last(geometry)
    if last is not geometry:
        values = geometry.layout.to_channels_last(inputs)
        return geometry.layout.from_channels_last(_convolve_sequences(values, kernel, last, filters))
    layout, shape = geometry.layout, tf.shape(inputs)
    sizes = geometry.transposed_sizes([shape[axis] for axis in layout.spatial_axes])
    outputs = tf.nn.conv1d_transpose(
        inputs,
        kernel,
        tf.stack(layout.arrange(shape[0], sizes, filters)),
        geometry.strides[0],
        padding=geometry.padding,
        data_format=layout.tensor_format,
    )
    outputs.set_shape(geometry.transposed_output_shape(inputs, filters))
    return outputs


def _convolve_images(inputs: Any, kernel: Any, geometry: ConvolutionGeometry, filters: int) -> Any:
    last = _with_channels_last(geometry)
    if last is not geometry:
        values = geometry.layout.to_channels_last(inputs)
        return geometry.layout.from_channels_last(_convolve_images(values, kernel, last, filters))
    layout, shape, static = geometry.layout, tf.shape(inputs), inputs.shape.as_list()
    batch_size = shape[0]
    sizes = [shape[axis] if static[axis] is None else static[axis] for axis in layout.spatial_axes]
    output_shape = tf.stack(layout.arrange(batch_size, geometry.transposed_sizes(sizes), filters))
    # Nobody needs this slice, but `tf.compat.v1.layers` makes it, and ops without a seed of their own take
    # the number of ops before them: without it, later layers would start from other values.
    _ = output_shape[0]
    outputs = tf.nn.conv2d_transpose(
        inputs,
        kernel,
        output_shape,
        layout.arrange(1, geometry.strides, 1),
        padding=geometry.padding,
        data_format=layout.tensor_format,
    )
    outputs.set_shape(geometry.transposed_output_shape(inputs, filters))
    return outputs


def _convolve_volumes(inputs: Any, kernel: Any, geometry: ConvolutionGeometry, filters: int) -> Any:
    layout, shape = geometry.layout, tf.shape(inputs)
    batch_size, *sizes = [shape[axis] for axis in (0, *layout.spatial_axes)]
    outputs = tf.nn.conv3d_transpose(
        inputs,
        kernel,
        tf.stack(layout.arrange(batch_size, geometry.transposed_sizes(sizes), filters)),
        layout.arrange(1, geometry.strides, 1),
        padding=geometry.padding,
        data_format=layout.tensor_format,
    )
    outputs.set_shape(geometry.transposed_output_shape(inputs, filters))
    return outputs


def _with_channels_last(geometry: ConvolutionGeometry) -> ConvolutionGeometry:
    """The geometry to compute by: CPUs have no kernels for channels first."""
    if not geometry.layout.channels_first or tf.config.list_physical_devices("GPU"):
        return geometry
    return attrs.evolve(geometry, layout=attrs.evolve(geometry.layout, channels_first=False))
