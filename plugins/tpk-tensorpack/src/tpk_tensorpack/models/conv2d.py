"""Convolutions of images."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk import layers
from tpk.layers.layer_scope import open_layer
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.models.common import ZEROS, he_normal_initializer, layer_with_weights, with_variables
from tpk_tensorpack.models.registry import layer_register
from tpk_tensorpack.models.tflayer import convert_to_tflayer_args
from tpk_tensorpack.utils.argtools import get_data_format, shape2d

__all__ = ["Conv2D", "Conv2DTranspose", "Deconv2D"]

v1 = tf.compat.v1

Shape2D = int | Sequence[int]
Function = Callable[[Any], Any]

_OLD_NAMES = {"out_channel": "filters", "kernel_shape": "kernel_size", "stride": "strides"}


@layer_register(log_shape=True)
@convert_to_tflayer_args(["filters", "kernel_size"], _OLD_NAMES)
def Conv2D(
    inputs: Any,
    filters: int,
    kernel_size: Shape2D,
    strides: Shape2D = (1, 1),
    padding: str = "same",
    data_format: str = "channels_last",
    dilation_rate: Shape2D = (1, 1),
    activation: Function | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = ZEROS,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    activity_regularizer: Function | None = None,
    split: int = 1,
) -> Any:
    """Convolve images like `tf.layers.conv2d`, but with padding ``"same"`` by default.

    Variables: ``W`` and, with `use_bias`, ``b``.

    Args:
        inputs: images with a known number of channels.
        filters: the number of output channels.
        kernel_size: the size of the kernel.
        strides: the strides of the window.
        padding: ``"same"`` or ``"valid"``.
        data_format: ``"channels_last"`` (``"NHWC"``) or ``"channels_first"`` (``"NCHW"``).
        dilation_rate: the dilation rate of the kernel.
        activation: a function applied to the outputs.
        use_bias: whether to add a bias.
        kernel_initializer: by default He's.
        bias_initializer: by default zeros.
        kernel_regularizer: maps ``W`` to a loss.
        bias_regularizer: maps ``b`` to a loss.
        activity_regularizer: maps the outputs to a loss.
        split: the number of channel groups; each output channel depends only on the inputs in its group.

    Returns:
        Images, named ``output``.
    """
    # All other parameters belong to the layer.
    options = dict(locals())
    if options.pop("split") == 1:
        return layer_with_weights(layers.conv2d, **options)

    layout = get_data_format(data_format, keras_mode=False)
    channel_axis = 3 if layout == "NHWC" else 1
    with open_layer("Conv2D", inputs, v1.get_variable_scope()) as layer:
        channels = layer.known_size(channel_axis, "channels")
        if channels % split or filters % split:
            raise CheckError(f"Conv2D: split={split} has to divide both {channels} channels and {filters} filters")
        shape = [*shape2d(kernel_size), channels // split, filters]
        kernel = layer.variable("W", shape, kernel_initializer or he_normal_initializer(), kernel_regularizer)
        bias = layer.variable("b", [filters], bias_initializer, bias_regularizer) if use_bias else None
        geometry = {"strides": strides, "padding": padding.upper(), "data_format": layout, "dilations": dilation_rate}
        convolve = functools.partial(v1.nn.conv2d, **geometry)
        if tf.config.list_physical_devices("GPU"):
            outputs = convolve(layer.inputs, kernel)
        else:
            # TensorFlow lacks gradients of grouped convolutions on CPUs.
            parts = zip(tf.split(layer.inputs, split, channel_axis), tf.split(kernel, split, 3), strict=True)
            outputs = tf.concat([convolve(part, own) for part, own in parts], channel_axis)
        outputs = layer.finish(outputs, activation, activity_regularizer, bias, layout)
    return with_variables(tf.identity(outputs, name="output"), W=kernel, b=bias)


@layer_register(log_shape=True)
@convert_to_tflayer_args(["filters", "kernel_size", "strides"], _OLD_NAMES)
def Conv2DTranspose(
    inputs: Any,
    filters: int,
    kernel_size: Shape2D,
    strides: Shape2D = (1, 1),
    padding: str = "same",
    data_format: str = "channels_last",
    activation: Function | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = ZEROS,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    activity_regularizer: Function | None = None,
) -> Any:
    """Transposed convolution of images like `tf.layers.conv2d_transpose`, but with padding ``"same"`` by default.

    See `Conv2D` for variables, arguments and outputs.
    """
    return layer_with_weights(layers.conv2d_transpose, **locals())


Deconv2D = Conv2DTranspose
