"""Layers with weights, and a normalizer and an activation after them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tf_slim.layers.initializers import xavier_initializer
from tf_slim.ops.arg_scope import add_arg_scope

from tpk import layers
from tpk_tensorflow1.contrib.layers.scopes import ZEROS, Function, finished, layer_scope, layout_of, named
from tpk_tensorflow1.missing import own_names

v1 = tf.compat.v1

Shape = int | Sequence[int]


def _layer_with_weights(
    compute: Function,
    default_scope: str,
    activation_fn: Function | None = tf.nn.relu,
    normalizer_fn: Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = None,
    weights_regularizer: Function | None = None,
    biases_initializer: Any = ZEROS,
    biases_regularizer: Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Apply a layer that has weights, given the arguments that all of these share.

    Args:
        compute: computes the outputs with a function of `tpk.layers`; it takes the options of that function.
        default_scope: the default of `scope`.
        activation_fn: see `fully_connected` for this argument and all others.
    """
    with layer_scope(scope, default_scope, reuse, variables_collections) as layer:
        outputs = compute(
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer or xavier_initializer(),
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=layer,
        )
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        return finished(outputs, outputs_collections, layer.name, activation_fn)


@add_arg_scope
def fully_connected(inputs: Any, num_outputs: int, *args: Any, **kwargs: Any) -> Any:
    """Connect every unit to all features, then apply the normalizer and the activation.

    Args:
        inputs: a tensor of shape [batch, …, features].
        num_outputs: the number of units.
        args: the following arguments, in this order.
        kwargs: the same by name.
        activation_fn: the activation; None for a linear layer.
        normalizer_fn: a normalizer that replaces the bias, such as `batch_norm`.
        normalizer_params: additional arguments for the normalizer.
        weights_initializer: the initializer of ``weights``; by default `xavier_initializer`.
        weights_regularizer: maps ``weights`` to a loss.
        biases_initializer: the initializer of ``biases``; None for no bias.
        biases_regularizer: maps ``biases`` to a loss.
        reuse: whether to reuse existing variables.
        variables_collections: additional collections for all variables, or a mapping from their names to collections.
        outputs_collections: one or more collections for the outputs.
        trainable: whether the variables are trained.
        scope: the variable scope; by default ``fully_connected``, numbered if the name is in use.
    """
    compute = functools.partial(layers.dense, inputs, num_outputs)
    return _layer_with_weights(compute, "fully_connected", *args, **kwargs)


linear = functools.partial(fully_connected, activation_fn=None)
relu = functools.partial(fully_connected, activation_fn=tf.nn.relu)
relu6 = functools.partial(fully_connected, activation_fn=tf.nn.relu6)
elu = functools.partial(fully_connected, activation_fn=tf.nn.elu)


def _convolution(layer: Function, name: str, default_scope: str = "Conv") -> Function:
    def convolve(
        inputs: Any,
        num_outputs: int,
        kernel_size: Shape,
        stride: Shape = 1,
        padding: str = "SAME",
        data_format: str | None = None,
        **options: Any,
    ) -> Any:
        """Convolve sequences, images or volumes, then apply the normalizer and the activation.

        Args:
            inputs: a batch of them.
            num_outputs: the number of output channels.
            kernel_size: the sizes of the kernel.
            stride: the stride of the windows.
            padding: ``"SAME"`` or ``"VALID"``.
            data_format: such as ``"NHWC"`` or ``"NCHW"``.
            options: `rate`, the dilation rate of the kernel, unless the convolution is transposed; and the other
                arguments of `fully_connected`.
        """
        compute = functools.partial(layer, inputs, num_outputs, kernel_size, stride, padding, layout_of(data_format))
        if "rate" in options:
            compute = functools.partial(compute, dilation_rate=options.pop("rate"))
        return _layer_with_weights(compute, default_scope, **options)

    return add_arg_scope(named(convolve, name))


conv1d = convolution1d = _convolution(layers.conv1d, "convolution1d")
conv2d = convolution2d = _convolution(layers.conv2d, "convolution2d")
conv3d = convolution3d = _convolution(layers.conv3d, "convolution3d")
conv2d_transpose = _convolution(layers.conv2d_transpose, "convolution2d_transpose", "Conv2d_transpose")
conv3d_transpose = _convolution(layers.conv3d_transpose, "convolution3d_transpose", "Conv3d_transpose")
convolution2d_transpose, convolution3d_transpose = conv2d_transpose, conv3d_transpose


@add_arg_scope
def convolution(inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Convolve sequences, images or volumes, depending on the rank of the inputs; see `conv2d` for the arguments."""
    return {3: conv1d, 4: conv2d, 5: conv3d}[inputs.shape.rank](inputs, *args, **kwargs)


@add_arg_scope
def separable_convolution2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Shape,
    depth_multiplier: int = 1,
    stride: Shape = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: Shape = 1,
    **options: Any,
) -> Any:
    """Convolve each channel, then mix the channels unless `num_outputs` is None; see `conv2d`."""
    geometry = stride, padding, layout_of(data_format), rate, depth_multiplier

    def compute(kernel_initializer: Any, kernel_regularizer: Function | None, **options: Any) -> Any:
        options |= {"depthwise_initializer": kernel_initializer, "depthwise_regularizer": kernel_regularizer}
        if num_outputs is None:
            return layers.depthwise_conv2d(inputs, kernel_size, *geometry, **options)
        options |= {"pointwise_initializer": kernel_initializer, "pointwise_regularizer": kernel_regularizer}
        return layers.separable_conv2d(inputs, num_outputs, kernel_size, *geometry, **options)

    return _layer_with_weights(compute, "SeparableConv2d", **options)


separable_conv2d = separable_convolution2d


__all__ = ["elu", "linear", "relu", "relu6", *own_names(__name__)]
