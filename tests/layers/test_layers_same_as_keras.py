"""The layers compute what the layers of Keras do, which every TensorFlow that tpk supports has: outputs and gradients.

So each is held to something on TensorFlows that have no `tf.compat.v1.layers`, and those that never were in it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers

v1 = tf.compat.v1
RNG = np.random.default_rng(4)
SEQUENCES = RNG.normal(size=[2, 9, 4]).astype(np.float32)
IMAGES = RNG.normal(size=[2, 6, 5, 4]).astype(np.float32)
VOLUMES = RNG.normal(size=[2, 5, 6, 7, 4]).astype(np.float32)

SAME: dict[str, tuple[str, str, np.ndarray, dict[str, Any]]] = {
    "conv1d, causal": ("conv1d", "Conv1D", SEQUENCES, {"filters": 3, "kernel_size": 3, "padding": "causal"}),
    "conv1d, strides": ("conv1d", "Conv1D", SEQUENCES, {"filters": 3, "kernel_size": 3, "strides": 2}),
    "conv1d, dilated": (
        "conv1d",
        "Conv1D",
        SEQUENCES,
        {"filters": 3, "kernel_size": 2, "dilation_rate": 3, "padding": "same", "activation": "tanh"},
    ),
    "conv3d": ("conv3d", "Conv3D", VOLUMES, {"filters": 3, "kernel_size": (3, 2, 3), "strides": (1, 2, 1)}),
    "conv1d_transpose": ("conv1d_transpose", "Conv1DTranspose", SEQUENCES, {"filters": 3, "kernel_size": 3}),
    "conv1d_transpose, same": (
        "conv1d_transpose",
        "Conv1DTranspose",
        SEQUENCES,
        {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same", "use_bias": False},
    ),
    "conv3d_transpose": (
        "conv3d_transpose",
        "Conv3DTranspose",
        VOLUMES,
        {"filters": 3, "kernel_size": 3, "strides": (2, 1, 2), "activation": "relu"},
    ),
    "conv3d_transpose, same": (
        "conv3d_transpose",
        "Conv3DTranspose",
        VOLUMES,
        {"filters": 3, "kernel_size": 3, "strides": (1, 2, 2), "padding": "same"},
    ),
    "separable_conv1d": (
        "separable_conv1d",
        "SeparableConv1D",
        SEQUENCES,
        {"filters": 3, "kernel_size": 3, "depth_multiplier": 2, "padding": "same", "activation": "tanh"},
    ),
    "depthwise_conv2d": (
        "depthwise_conv2d",
        "DepthwiseConv2D",
        IMAGES,
        {"kernel_size": (3, 2), "strides": 2, "depth_multiplier": 2, "activation": "relu"},
    ),
    "depthwise_conv2d, dilated": (
        "depthwise_conv2d",
        "DepthwiseConv2D",
        IMAGES,
        {"kernel_size": 2, "dilation_rate": 2, "padding": "same", "use_bias": False},
    ),
    "max_pooling1d": ("max_pooling1d", "MaxPooling1D", SEQUENCES, {"pool_size": 3, "strides": 2, "padding": "same"}),
    "average_pooling1d": ("average_pooling1d", "AveragePooling1D", SEQUENCES, {"pool_size": 3, "strides": 2}),
    "max_pooling3d": ("max_pooling3d", "MaxPooling3D", VOLUMES, {"pool_size": (2, 3, 1), "strides": (1, 2, 3)}),
    "average_pooling3d": (
        "average_pooling3d",
        "AveragePooling3D",
        VOLUMES,
        {"pool_size": 3, "strides": 2, "padding": "same"},
    ),
    "global_max_pooling": ("global_max_pooling", "GlobalMaxPooling2D", IMAGES, {"keepdims": True}),
    "global_max_pooling of sequences": ("global_max_pooling", "GlobalMaxPooling1D", SEQUENCES, {}),
    "global_average_pooling": ("global_average_pooling", "GlobalAveragePooling2D", IMAGES, {}),
    "global_average_pooling, channels first": (
        "global_average_pooling",
        "GlobalAveragePooling3D",
        VOLUMES,
        {"data_format": "channels_first"},
    ),
    "layer_normalization": ("layer_normalization", "LayerNormalization", IMAGES, {}),
    "layer_normalization over several axes": (
        "layer_normalization",
        "LayerNormalization",
        IMAGES,
        {"axis": [1, 3], "epsilon": 0.1},
    ),
    "layer_normalization without center": ("layer_normalization", "LayerNormalization", SEQUENCES, {"center": False}),
    "group_normalization": ("group_normalization", "GroupNormalization", IMAGES, {"groups": 2}),
    "group_normalization, channels first": (
        "group_normalization",
        "GroupNormalization",
        VOLUMES,
        {"groups": 5, "axis": 1, "epsilon": 0.1},
    ),
    "group_normalization of features": ("group_normalization", "GroupNormalization", IMAGES[:, 0, 0], {"groups": 2}),
    "prelu": ("prelu", "PReLU", IMAGES, {}),
    "prelu, shared": ("prelu", "PReLU", IMAGES, {"shared_axes": [1, 2]}),
}


def ours(name: str, inputs: np.ndarray, **options: Any) -> tuple[list[np.ndarray], list[Any], list[Any]]:
    """The variables, then the outputs, and the gradients of the sum of their squares."""
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(5)
        x = v1.placeholder_with_default(inputs, [None, *inputs.shape[1:]])
        outputs = getattr(layers, name)(x, **options)
        variables = v1.trainable_variables()
        sess.run([variable.assign(tf.random.uniform(variable.shape, -1, 1)) for variable in variables])
        gradients = tf.gradients(tf.reduce_sum(tf.square(outputs)), [x, *variables])
        static, values = outputs.shape, sess.run(outputs)
        assert static.is_compatible_with(values.shape) and static.num_elements() is None
        assert None not in static.as_list()[1:]
        return sess.run(variables), values, sess.run(gradients)


def of_keras(layer: Any, inputs: np.ndarray, weights: list[np.ndarray]) -> tuple[Any, list[Any]]:
    layer.build(inputs.shape)
    layer.set_weights(weights)
    x = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x)
        cost = tf.reduce_sum(tf.square(outputs))
    return outputs.numpy(), [
        tf.convert_to_tensor(it).numpy() for it in tape.gradient(cost, [x, *layer.trainable_weights])
    ]


@pytest.mark.parametrize("case", SAME)
@pytest.mark.tf2_only("runs the layers of Keras eagerly")
def test_same_as_keras(case: str) -> None:
    name, kind, inputs, options = SAME[case]
    weights, outputs, gradients = ours(name, inputs, **options)
    expected, expected_gradients = of_keras(getattr(tf.keras.layers, kind)(**options), inputs, weights)
    np.testing.assert_allclose(outputs, expected, rtol=2e-4, atol=2e-5)
    for found, wanted in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-3)


@pytest.mark.tf2_only("runs the layers of Keras eagerly")
def test_an_instance_normalization_has_a_group_for_each_channel() -> None:
    weights, outputs, gradients = ours("instance_normalization", IMAGES)
    expected, expected_gradients = of_keras(tf.keras.layers.GroupNormalization(groups=4), IMAGES, weights)
    np.testing.assert_allclose(outputs, expected, rtol=2e-4, atol=2e-5)
    for found, wanted in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-3)


FIRST: dict[str, Callable[..., Any]] = {
    "conv1d_transpose": lambda x, last: layers.conv1d_transpose(
        x, 3, 3, 2, data_format=last, kernel_initializer="ones"
    ),
    "max_pooling1d": lambda x, last: layers.max_pooling1d(x, 3, 2, data_format=last),
    "average_pooling3d": lambda x, last: layers.average_pooling3d(x, 3, 2, "same", data_format=last),
    "global_max_pooling": lambda x, last: layers.global_max_pooling(x, last, keepdims=True),
    "instance_normalization": lambda x, last: layers.instance_normalization(x, -1 if last == "channels_last" else 1),
}


@pytest.mark.parametrize("kind", FIRST)
def test_channels_first(kind: str) -> None:
    inputs = VOLUMES if kind == "average_pooling3d" else SEQUENCES
    rank = inputs.ndim
    with tf.Graph().as_default(), v1.Session() as sess:
        last = FIRST[kind](tf.constant(inputs), "channels_last")
        first = FIRST[kind](tf.constant(np.moveaxis(inputs, -1, 1)), "channels_first")
        sess.run(v1.global_variables_initializer())
        expected, found = sess.run([last, first])
    np.testing.assert_allclose(found, expected.transpose([0, rank - 1, *range(1, rank - 1)]), rtol=1e-5, atol=1e-5)
