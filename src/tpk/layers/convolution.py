"""Convolutions of sequences, images and volumes, and their transposes."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.geometry import ConvolutionGeometry, require_window_fits
from tpk.layers.layer_scope import ZEROS, Function, Sizes, of_rank, open_layer

_TRANSPOSED = {1: tf.nn.conv1d_transpose, 2: tf.nn.conv2d_transpose, 3: tf.nn.conv3d_transpose}


def _convolution(
    kind: str,
    spatial_rank: int,
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
    with open_layer(kind, inputs, name, reuse) as layer:
        is_sequence = spatial_rank == 1
        geometry = ConvolutionGeometry.of(
            layer, spatial_rank, kernel_size, strides, padding, data_format, dilation_rate, may_be_causal=is_sequence
        )
        filters = layer.count_of("filters", filters)
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        shape = [*geometry.kernel_size, geometry.channels, filters]
        kernel = layer.variable("kernel", shape, kernel_initializer, kernel_regularizer, kernel_constraint, trainable)
        bias = layer.bias(filters, use_bias, (bias_initializer, bias_regularizer, bias_constraint), trainable)
        inputs, geometry = geometry.padded_causally(layer.inputs)
        outputs = tf.nn.convolution(
            inputs,
            kernel,
            strides=geometry.strides,
            padding=geometry.padding,
            data_format=geometry.layout.tensor_format,
            dilations=geometry.dilation_rate,
            name=f"Conv{spatial_rank}D",
        )
        # A dilated convolution forgets a known size if another one is unknown.
        outputs.set_shape(geometry.output_shape(inputs, filters))
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def _transposed_convolution(
    kind: str,
    spatial_rank: int,
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
    with open_layer(kind, inputs, name, reuse) as layer:
        geometry = ConvolutionGeometry.of(layer, spatial_rank, kernel_size, strides, padding, data_format)
        filters = layer.count_of("filters", filters)
        shape = [*geometry.kernel_size, filters, geometry.channels]
        kernel = layer.variable("kernel", shape, kernel_initializer, kernel_regularizer, kernel_constraint, trainable)
        bias = layer.bias(filters, use_bias, (bias_initializer, bias_regularizer, bias_constraint), trainable)
        outputs = _convolve_transposed(layer.inputs, kernel, geometry, filters)
        return layer.finish(outputs, activation, activity_regularizer, bias, geometry.layout.tensor_format)


def _convolve_transposed(inputs: Any, kernel: Any, geometry: ConvolutionGeometry, filters: int) -> Any:
    layout = geometry.layout
    # CPUs have no kernels for channels first; in 3D, TensorFlow has no other way to compute them.
    if layout.channels_first and layout.spatial_rank < 3 and not tf.config.list_physical_devices("GPU"):
        last = attrs.evolve(geometry, layout=attrs.evolve(layout, channels_first=False))
        return layout.from_channels_last(_convolve_transposed(layout.to_channels_last(inputs), kernel, last, filters))
    shape, static = tf.shape(inputs), inputs.shape.as_list()
    batch_size = shape[0]
    is_image = layout.spatial_rank == 2
    sizes = [static[axis] if is_image and static[axis] is not None else shape[axis] for axis in layout.spatial_axes]
    output_shape = tf.stack(layout.arrange(batch_size, geometry.transposed_sizes(sizes), filters))
    if is_image:
        # `tf.compat.v1.layers` makes this unused slice. Ops without a seed depend on the number of ops before them, so
        # without it, variables of later layers would have other initial values.
        _ = output_shape[0]
    outputs = _TRANSPOSED[layout.spatial_rank](
        inputs,
        kernel,
        output_shape,
        layout.arrange(1, geometry.strides, 1),
        padding=geometry.padding,
        data_format=layout.tensor_format,
    )
    outputs.set_shape(layout.arrange(static[0], geometry.transposed_sizes(layout.spatial_sizes(inputs)), filters))
    return outputs


@of_rank(_convolution, 1)
def conv1d() -> None:
    """Convolve sequences with a kernel (technically, a cross-correlation).

    Variables: ``kernel`` of shape [length, channels, filters], and ``bias`` of shape [filters].

    The inputs have the shape [batch, length, channels], or [batch, channels, length] with channels first. Sizes are an
    integer, or a tuple of one. `padding` may also be ``"causal"``: zeros before the sequence only, so that an output
    depends on no later input (van den Oord et al., 2016, https://arxiv.org/abs/1609.03499). Otherwise, see `conv2d`.

    Example:
        ```python
        x = conv1d(embedded_words, 64, 3, padding="causal", dilation_rate=2, activation=tf.nn.relu)
        ```
    """


@of_rank(_convolution, 2)
def conv2d() -> None:
    """Convolve images with a kernel (technically, a cross-correlation).

    Variables: ``kernel`` of shape [height, width, channels, filters], and ``bias`` of shape [filters].

    Args:
        inputs: floating-point images of shape [batch, height, width, channels], or [batch, channels, height, width]
            with channels first; the number of channels must be known.
        filters: the number of output channels.
        kernel_size: (height, width) of the kernel, or one integer for both.
        strides: the distance of windows along (height, width), or one integer for both.
        padding: ``"valid"`` (none) or ``"same"``.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        dilation_rate: the distance of the elements of the kernel along (height, width), or one integer for both; not
            together with strides.
        activation: a function, or its name in `tf.nn`; None is linear.
        use_bias: whether to add a bias.
        kernel_initializer: an initializer or its name; None for the one of the enclosing variable scope, or else
            Glorot-uniform.
        bias_initializer: an initializer or its name.
        kernel_regularizer: maps the kernel to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        bias_regularizer: the same for the bias.
        activity_regularizer: the same for the outputs; the loss is divided by the batch size.
        kernel_constraint: maps the kernel to its projection after an optimizer's update.
        bias_constraint: the same for the bias.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None for ``conv2d``, made unique: ``conv2d_1``, ...
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        The outputs, in the layout of the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the layer.

    Example:
        ```python
        x = conv2d(image, 32, 3, padding="same", activation=tf.nn.relu)
        x = conv2d(x, 64, (3, 1), strides=2, use_bias=False, name="narrow")
        ```
    """


@of_rank(_convolution, 3)
def conv3d() -> None:
    """Convolve volumes with a kernel (technically, a cross-correlation).

    Variables: ``kernel`` of shape [depth, height, width, channels, filters], and ``bias`` of shape [filters].

    The inputs have the shape [batch, depth, height, width, channels], or [batch, channels, depth, height, width] with
    channels first, for which TensorFlow has kernels on GPUs only. Sizes are (depth, height, width), or one integer for
    all. Otherwise, see `conv2d`.

    Example:
        ```python
        x = conv3d(video, 16, (3, 5, 5), strides=(1, 2, 2), padding="same")
        ```
    """


@of_rank(_transposed_convolution, 1)
def conv1d_transpose() -> None:
    """Convolve sequences with the transpose of a convolution, which is its gradient: strides lengthen them.

    Variables: ``kernel`` of shape [length, filters, channels], and ``bias`` of shape [filters].

    The inputs are as for `conv1d`; sizes are an integer, or a tuple of one. Otherwise, see `conv2d_transpose`. The
    layer has no counterpart in `tf.compat.v1.layers`; it computes the same as `tf.keras.layers.Conv1DTranspose`.

    Example:
        ```python
        wave = conv1d_transpose(features, 1, kernel_size=16, strides=8, padding="same")
        ```
    """


@of_rank(_transposed_convolution, 2)
def conv2d_transpose() -> None:
    """Convolve images with the transpose of a convolution, which is its gradient: strides enlarge them.

    Variables: ``kernel`` of shape [height, width, filters, channels], and ``bias`` of shape [filters].

    Args:
        inputs: as for `conv2d`.
        filters: the number of output channels.
        kernel_size: (height, width) of the kernel, or one integer for both.
        strides: the distance of windows in the outputs along (height, width), or one integer for both.
        padding: ``"same"`` makes the outputs `strides` times as large as the inputs, ``"valid"`` adds the part of the
            kernel that exceeds the strides.
        data_format: as for `conv2d`. Without a GPU, channels-first images are transposed, and the outputs back.

    See `conv2d` for the other arguments, the result and the errors.
    """


@of_rank(_transposed_convolution, 3)
def conv3d_transpose() -> None:
    """Convolve volumes with the transpose of a convolution, which is its gradient: strides enlarge them.

    Variables: ``kernel`` of shape [depth, height, width, filters, channels], and ``bias`` of shape [filters].

    The inputs are as for `conv3d`; sizes are (depth, height, width), or one integer for all. Otherwise, see
    `conv2d_transpose`. TensorFlow has kernels for channels first on GPUs only.

    Example:
        ```python
        volume = conv3d_transpose(features, 8, 3, strides=2, padding="same", activation=tf.nn.relu)
        ```
    """
