"""Convolutions of images."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.arguments import (
    Function,
    ImageLayout,
    Pair,
    count_of,
    padding_of,
    pair_of,
    require_floating,
    require_images,
    require_window_fits,
    static_size,
)
from tpk.layers.layer_scope import ZEROS, LayerScope, open_layer


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
        inputs: floating-point images of shape [batch, height, width, channels], or, with channels first, [batch,
            channels, height, width]; the number of channels must be known.
        filters: how many channels the outputs have.
        kernel_size: (height, width) of the kernel, or one integer for both.
        strides: the steps between outputs, by (height, width), or one integer for both.
        padding: ``"valid"`` (none) or ``"same"``.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        dilation_rate: the distance of the kernel's elements, by (height, width), or one integer for both; not
            together with strides.
        activation: a function, or its name in `tf.nn`; None is linear.
        use_bias: whether to add a bias.
        kernel_initializer: an initializer or its name; None means the enclosing variable scope's, and where that
            has none, Glorot-uniform.
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
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be used; it names the layer.

    Example:
        ```python
        x = conv2d(image, 32, 3, padding="same", activation=tf.nn.relu)
        x = conv2d(x, 64, (3, 1), strides=2, use_bias=False, name="narrow")
        ```
    """
    with open_layer("conv2d", inputs, name, reuse) as layer:
        geometry = _Geometry.of(
            layer, filters, kernel_size, strides, padding, data_format, dilation_rate=dilation_rate
        )
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, geometry.channels, geometry.filters],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = None
        if use_bias:
            bias = layer.variable(
                "bias",
                [geometry.filters],
                initializer=bias_initializer,
                regularizer=bias_regularizer,
                constraint=bias_constraint,
                trainable=trainable,
            )
        outputs = tf.nn.convolution(
            layer.inputs,
            kernel,
            strides=list(geometry.strides),
            padding=geometry.padding,
            data_format=geometry.layout.tensor_format,
            dilations=list(geometry.dilation_rate),
            name="Conv2D",
        )
        outputs = geometry.add_bias(outputs, bias)
        return layer.activate(outputs, activation, activity_regularizer)


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
    """Convolve images with the transpose (the gradient) of a convolution: strides enlarge them.

    Variables: ``kernel`` of shape [height, width, filters, channels], and ``bias`` of shape [filters].

    Args:
        inputs: as for `conv2d`.
        filters: how many channels the outputs have.
        kernel_size: (height, width) of the kernel, or one integer for both.
        strides: how many outputs an input stands for, by (height, width), or one integer for both.
        padding: ``"same"`` makes the outputs `strides` times as large as the inputs; ``"valid"`` adds what the
            kernel reaches beyond.
        data_format: as for `conv2d`; likewise all further arguments. The default name is ``conv2d_transpose``.
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
        name: as for `conv2d`.
        reuse: as for `conv2d`.

    Returns:
        The outputs, in the layout of the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be used; it names the layer.
    """
    with open_layer("conv2d_transpose", inputs, name, reuse) as layer:
        geometry = _Geometry.of(layer, filters, kernel_size, strides, padding, data_format)
        kernel = layer.variable(
            "kernel",
            [*geometry.kernel_size, geometry.filters, geometry.channels],
            initializer=kernel_initializer,
            regularizer=kernel_regularizer,
            constraint=kernel_constraint,
            trainable=trainable,
        )
        bias = None
        if use_bias:
            bias = layer.variable(
                "bias",
                [geometry.filters],
                initializer=bias_initializer,
                regularizer=bias_regularizer,
                constraint=bias_constraint,
                trainable=trainable,
            )
        outputs = tf.nn.conv2d_transpose(
            layer.inputs,
            kernel,
            geometry.transposed_shape(layer.inputs),
            geometry.layout.arrange(1, geometry.strides, 1),
            padding=geometry.padding,
            data_format=geometry.layout.tensor_format,
        )
        outputs.set_shape(geometry.static_transposed_shape(layer.inputs))
        outputs = geometry.add_bias(outputs, bias)
        return layer.activate(outputs, activation, activity_regularizer)


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

    Variables: ``depthwise_kernel`` of shape [height, width, channels, depth_multiplier], ``pointwise_kernel`` of
    shape [1, 1, channels * depth_multiplier, filters], and ``bias`` of shape [filters].

    Args:
        inputs: as for `conv2d`.
        filters: how many channels the outputs have.
        kernel_size: (height, width) of the depthwise kernel, or one integer for both.
        strides: the steps between outputs; TensorFlow wants the same for height and width.
        padding: as for `conv2d`.
        data_format: as for `conv2d`.
        dilation_rate: as for `conv2d`.
        depth_multiplier: how many outputs the depthwise convolution has for each channel.
        activation: as for `conv2d`.
        use_bias: as for `conv2d`.
        depthwise_initializer: as `kernel_initializer` of `conv2d`, for the depthwise kernel.
        pointwise_initializer: the same for the pointwise kernel.
        bias_initializer: as for `conv2d`.
        depthwise_regularizer: maps the depthwise kernel to a scalar loss.
        pointwise_regularizer: maps the pointwise kernel to a scalar loss.
        bias_regularizer: as for `conv2d`.
        activity_regularizer: as for `conv2d`.
        depthwise_constraint: maps the depthwise kernel to its projection after an optimizer's update.
        pointwise_constraint: maps the pointwise kernel to its projection after an optimizer's update.
        bias_constraint: as for `conv2d`.
        trainable: as for `conv2d`.
        name: as for `conv2d`; the default is ``separable_conv2d``.
        reuse: as for `conv2d`.

    Returns:
        The outputs, in the layout of the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be used; it names the layer.
    """
    with open_layer("separable_conv2d", inputs, name, reuse) as layer:
        geometry = _Geometry.of(
            layer, filters, kernel_size, strides, padding, data_format, dilation_rate=dilation_rate
        )
        require_window_fits(layer, geometry.layout, geometry.window, geometry.padding)
        depth_multiplier = count_of(layer, "depth_multiplier", depth_multiplier)
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
        bias = None
        if use_bias:
            bias = layer.variable(
                "bias",
                [geometry.filters],
                initializer=bias_initializer,
                regularizer=bias_regularizer,
                constraint=bias_constraint,
                trainable=trainable,
            )
        outputs = tf.nn.separable_conv2d(
            layer.inputs,
            depthwise_kernel,
            pointwise_kernel,
            geometry.layout.arrange(1, geometry.strides, 1),
            padding=geometry.padding,
            data_format=geometry.layout.tensor_format,
            dilations=list(geometry.dilation_rate),
        )
        outputs = geometry.add_bias(outputs, bias)
        return layer.activate(outputs, activation, activity_regularizer)


@attrs.frozen
class _Geometry:
    """The checked sizes of a convolution."""

    layout: ImageLayout
    channels: int
    filters: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int]
    dilation_rate: tuple[int, int]
    padding: str

    @classmethod
    def of(
        cls,
        layer: LayerScope,
        filters: int,
        kernel_size: Pair,
        strides: Pair,
        padding: str,
        data_format: str,
        dilation_rate: Pair = (1, 1),
    ) -> _Geometry:
        layout = ImageLayout.of(layer, data_format)
        require_images(layer, layout)
        require_floating(layer)
        geometry = cls(
            layout=layout,
            channels=static_size(layer, layout.channel_axis, "channels"),
            filters=count_of(layer, "filters", filters),
            kernel_size=pair_of(layer, "kernel_size", kernel_size),
            strides=pair_of(layer, "strides", strides),
            dilation_rate=pair_of(layer, "dilation_rate", dilation_rate),
            padding=padding_of(layer, padding),
        )
        if max(geometry.strides) > 1 and max(geometry.dilation_rate) > 1:
            raise layer.error(
                "(strides, dilation_rate)",
                (geometry.strides, geometry.dilation_rate),
                "at most one of them greater than 1",
                "Dilate in this layer and downsample in another, or the other way round.",
            )
        return geometry

    @property
    def window(self) -> tuple[int, int]:
        """What the dilated kernel covers."""
        height, width = (
            (size - 1) * rate + 1 for size, rate in zip(self.kernel_size, self.dilation_rate, strict=True)
        )
        return height, width

    def add_bias(self, outputs: Any, bias: Any) -> Any:
        if bias is None:
            return outputs
        return tf.nn.bias_add(outputs, bias, data_format=self.layout.tensor_format)

    def transposed_shape(self, inputs: Any) -> Any:
        """The shape of what the transposed convolution makes of `inputs`, as a tensor."""
        dynamic = tf.shape(inputs)
        batch_size = dynamic[0]
        sizes = [
            dynamic[axis] if inputs.shape[axis] is None else inputs.shape[axis]
            for axis in self.layout.spatial_axes
        ]
        shape = tf.stack(self.layout.arrange(batch_size, self._transposed_sizes(sizes), self.filters))
        # An initializer without a seed takes the number of ops in the graph for one, and `tf.compat.v1.layers` reads
        # the batch size back here. Without these ops, the layers that follow would start from other values.
        _ = shape[0]
        return shape

    def static_transposed_shape(self, inputs: Any) -> list[int | None]:
        """What is known of that shape when the graph is built."""
        sizes = [inputs.shape[axis] for axis in self.layout.spatial_axes]
        return self.layout.arrange(inputs.shape[0], self._transposed_sizes(sizes), self.filters)

    def _transposed_sizes(self, sizes: list[Any]) -> list[Any]:
        """Height and width of the outputs: a window for each input, `strides` apart."""
        outputs = []
        for size, kernel, stride in zip(sizes, self.kernel_size, self.strides, strict=True):
            if size is None:
                outputs.append(None)
            elif self.padding == "SAME":
                outputs.append(size * stride)
            else:
                outputs.append(size * stride + max(kernel - stride, 0))
        return outputs
