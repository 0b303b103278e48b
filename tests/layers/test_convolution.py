from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers
from tpk.errors import ConfigError

v1 = tf.compat.v1
RNG = np.random.default_rng(1)
IMAGES = RNG.normal(size=[2, 6, 5, 3]).astype(np.float32)


def run(build: Any, inputs: np.ndarray = IMAGES, dynamic: bool = False) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The outputs, and the variables by name."""
    with tf.Graph().as_default(), v1.Session() as sess:
        shape = [None, None, None, inputs.shape[-1]] if dynamic else inputs.shape
        x = v1.placeholder(tf.float32, shape)
        outputs = build(x)
        sess.run(v1.global_variables_initializer())
        variables = {variable.op.name: variable for variable in v1.global_variables()}
        return sess.run([outputs, variables], {x: inputs})


def correlate(images: np.ndarray, kernel: np.ndarray, stride: int = 1, dilation: int = 1) -> np.ndarray:
    """Convolve without padding, by the definition."""
    height, width = ((size - 1) * dilation + 1 for size in kernel.shape[:2])
    rows = range(0, images.shape[1] - height + 1, stride)
    columns = range(0, images.shape[2] - width + 1, stride)
    windows = [
        [images[:, row : row + height : dilation, column : column + width : dilation] for column in columns]
        for row in rows
    ]
    return np.einsum("rcnhwi,hwio->nrco", np.array(windows), kernel)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_conv2d(stride: int, dilation: int, dynamic: bool) -> None:
    outputs, variables = run(
        lambda x: layers.conv2d(
            x,
            *(4, (2, 3), stride),
            dilation_rate=dilation,
            activation="relu",
            bias_initializer=v1.constant_initializer(0.1),
        ),
        dynamic=dynamic,
    )
    assert list(variables) == ["conv2d/kernel", "conv2d/bias"]
    expected = correlate(IMAGES, variables["conv2d/kernel"], stride, dilation) + 0.1
    np.testing.assert_allclose(outputs, np.maximum(expected, 0), rtol=1e-5, atol=1e-5)


def test_conv2d_same_padding() -> None:
    outputs, variables = run(lambda x: layers.conv2d(x, 4, 3, padding="SAME", use_bias=False))
    assert list(variables) == ["conv2d/kernel"]
    padded = np.pad(IMAGES, [(0, 0), (1, 1), (1, 1), (0, 0)])
    np.testing.assert_allclose(outputs, correlate(padded, variables["conv2d/kernel"]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_conv2d_transpose_is_the_gradient_of_conv2d(padding: str, dynamic: bool) -> None:
    strides, kernel_size = (2, 3), (3, 2)
    outputs, variables = run(lambda x: layers.conv2d_transpose(x, 4, kernel_size, strides, padding), dynamic=dynamic)
    kernel = variables["conv2d_transpose/kernel"]
    assert kernel.shape == (3, 2, 4, 3)
    with tf.Graph().as_default(), v1.Session() as sess:
        large = v1.placeholder_with_default(np.zeros(outputs.shape, np.float32), outputs.shape)
        small = tf.nn.conv2d(large, kernel, strides, padding.upper())
        expected = sess.run(tf.gradients(small, large, grad_ys=tf.constant(IMAGES))[0])
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_conv2d_transpose_channels_first(padding: str) -> None:
    kernel = RNG.normal(size=[3, 3, 4, 3]).astype(np.float32)

    def convolve(x: Any, data_format: str) -> Any:
        return layers.conv2d_transpose(
            x, 4, 3, 2, padding, data_format, kernel_initializer=v1.constant_initializer(kernel)
        )

    last, _ = run(lambda x: convolve(x, "channels_last"))
    first, _ = run(lambda x: tf.transpose(convolve(tf.transpose(x, [0, 3, 1, 2]), "channels_first"), [0, 2, 3, 1]))
    np.testing.assert_allclose(first, last, rtol=1e-5, atol=1e-5)


def test_separable_conv2d() -> None:
    outputs, variables = run(lambda x: layers.separable_conv2d(x, 5, 3, depth_multiplier=2))
    assert {name: value.shape for name, value in variables.items()} == {
        "separable_conv2d/depthwise_kernel": (3, 3, 3, 2),
        "separable_conv2d/pointwise_kernel": (1, 1, 6, 5),
        "separable_conv2d/bias": (5,),
    }
    depthwise, pointwise = list(variables.values())[:2]
    kernel = np.einsum("hwim,imo->hwio", depthwise, pointwise.reshape(3, 2, 5))
    np.testing.assert_allclose(outputs, correlate(IMAGES, kernel), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("data_format", "shape", "expected"),
    [
        ("channels_last", [None, 9, 8, 3], [None, 4, 3, 4]),
        ("channels_last", [None, 9, None, 3], [None, 4, None, 4]),
        ("channels_first", [7, 3, 9, 8], [7, 4, 4, 3]),
    ],
)
def test_static_shapes(data_format: str, shape: list, expected: list) -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, shape)
        outputs = layers.conv2d(x, 4, 3, 2, data_format=data_format)
        assert outputs.shape.as_list() == expected
        assert layers.separable_conv2d(x, 4, 3, 2, data_format=data_format).shape.as_list() == expected


def test_static_shape_of_a_dilated_convolution() -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 9, None, 3])
        assert layers.conv2d(x, 4, 3, dilation_rate=2).shape.as_list() == [None, 5, None, 4]


def test_static_shape_of_a_transposed_convolution() -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 5, None, 3])
        assert layers.conv2d_transpose(x, 4, 3, 2).shape.as_list() == [None, 11, None, 4]
        assert layers.conv2d_transpose(x, 4, 3, 2, "same").shape.as_list() == [None, 10, None, 4]
        assert layers.conv2d_transpose(x, 4, 2, 3).shape.as_list() == [None, 15, None, 4]


def test_whole_floats_count_as_integers() -> None:
    with tf.Graph().as_default():
        assert layers.conv2d(IMAGES, 8 / 2, 6 / 2, strides=[2 / 1, 1]).shape == [2, 2, 3, 4]


ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"filters": 0}, "filters is 0, expected a positive integer"),
    ({"filters": 2.5}, r"filters is 2\.5, expected a positive integer"),
    ({"filters": "8"}, "filters is '8', expected a positive integer"),
    ({"filters": None}, "filters is None, expected a positive integer"),
    ({"filters": float("inf")}, "filters is inf, expected a positive integer"),
    ({"kernel_size": 0}, "kernel_size is 0, expected a positive integer or a tuple of 2"),
    ({"kernel_size": (3, 3, 3)}, r"kernel_size is \(3, 3, 3\), expected a positive integer or a tuple of 2"),
    ({"kernel_size": 2.5}, r"kernel_size is 2\.5, expected a positive integer or a tuple of 2"),
    ({"strides": (1, -1)}, r"strides is \(1, -1\), expected a positive integer or a tuple of 2"),
    ({"padding": "full"}, "padding is 'full', expected 'valid' or 'same'"),
    ({"padding": None}, "padding is None, expected 'valid' or 'same'"),
    ({"data_format": "NCHW"}, "data_format is 'NCHW', expected 'channels_last' or 'channels_first'"),
]


@pytest.mark.parametrize(("options", "message"), ARGUMENTS, ids=str)
@pytest.mark.parametrize("kind", ["conv2d", "conv2d_transpose", "separable_conv2d"])
def test_bad_arguments(kind: str, options: dict[str, Any], message: str) -> None:
    options = {"filters": 4, "kernel_size": 3, **options}
    match = f"^{kind} layer 'block/{kind}': {message}"
    with tf.Graph().as_default(), v1.variable_scope("block"), pytest.raises(ConfigError, match=match):
        getattr(layers, kind)(IMAGES, **options)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([None, 8, 3], r"\(None, 8, 3\), expected a shape of rank 4: \(batch, height, width, channels\)"),
        ([2, 2, 8, 8, 3], "rank 4"),
        (None, "None, expected a shape of rank 4"),
        ([None, 8, 8, None], "whose axis 3, the channels, is known.*set_shape"),
    ],
)
@pytest.mark.parametrize("kind", ["conv2d", "conv2d_transpose", "separable_conv2d"])
def test_bad_shapes(kind: str, shape: Any, message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=f"{kind}.*the shape of the inputs is .*{message}"):
        getattr(layers, kind)(v1.placeholder(tf.float32, shape), 4, 3)


def test_rank_with_channels_first_names_the_axes() -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=r"\(batch, channels, height, width\)"):
        layers.conv2d(tf.zeros([3, 8, 8]), 4, 3, data_format="channels_first")


@pytest.mark.parametrize("kind", ["conv2d", "separable_conv2d"])
def test_strides_and_dilation_exclude_each_other(kind: str) -> None:
    with (
        tf.Graph().as_default(),
        pytest.raises(ConfigError, match=r"\(strides, dilation_rate\) is \(\(2, 2\), \(1, 2\)\)"),
    ):
        getattr(layers, kind)(IMAGES, 4, 3, strides=2, dilation_rate=(1, 2))


@pytest.mark.parametrize("kind", ["conv2d", "separable_conv2d"])
def test_a_kernel_larger_than_the_image(kind: str) -> None:
    message = r"\(height, width\) of the inputs is \(6, 5\), expected at least \(3, 7\).*padding='same'"
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=message):
        getattr(layers, kind)(IMAGES, 4, (2, 4), dilation_rate=2)


def test_depth_multiplier_is_positive() -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match="depth_multiplier is 0"):
        layers.separable_conv2d(IMAGES, 4, 3, depth_multiplier=0)
