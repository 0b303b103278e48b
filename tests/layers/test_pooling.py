from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers
from tpk.errors import ConfigError

v1 = tf.compat.v1
IMAGES = np.random.default_rng(3).normal(size=[2, 6, 4, 3]).astype(np.float32)
POOLS = [("max_pooling2d", np.max), ("average_pooling2d", np.mean)]


def test_sizes_may_be_a_tensor_shape() -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 5, 7, 3])
        assert layers.average_pooling2d(x, x.get_shape()[1:3], 1).shape.as_list() == [None, 1, 1, 3]
        unknown = v1.placeholder(tf.float32, [None, None, 7, 3])
        with pytest.raises(ConfigError, match=r"pool_size is .*None, 7.*expected a positive integer or a tuple of 2"):
            layers.average_pooling2d(unknown, unknown.get_shape()[1:3], 1)


@pytest.mark.parametrize(("kind", "reduce"), POOLS)
def test_windows_side_by_side(kind: str, reduce: Any) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        outputs = sess.run(getattr(layers, kind)(IMAGES, (3, 2), (3, 2)))
    expected = reduce(IMAGES.reshape(2, 2, 3, 2, 2, 3), axis=(2, 4))
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "reduce"), POOLS)
def test_windows_that_overlap_and_padding_that_does_not_count(kind: str, reduce: Any) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        outputs = sess.run(getattr(layers, kind)(IMAGES, 2, 1, padding="same"))
    expected = [[reduce(IMAGES[:, i : i + 2, j : j + 2], axis=(1, 2)) for j in range(4)] for i in range(6)]
    np.testing.assert_allclose(outputs, np.array(expected).transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "_"), POOLS)
def test_static_shape_with_channels_first(kind: str, _: Any) -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 3, 6, 4])
        assert getattr(layers, kind)(x, 2, 2, data_format="channels_first").shape.as_list() == [None, 3, 3, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool_size": 0}, "pool_size is 0, expected a positive integer or a tuple of 2"),
        ({"strides": None}, "strides is None, expected a positive integer or a tuple of 2"),
        ({"padding": "explicit"}, "padding is 'explicit', expected 'valid' or 'same'"),
        ({"data_format": "NHWC"}, "data_format is 'NHWC', expected 'channels_last'"),
        ({"pool_size": (7, 2)}, r"\(height, width\) of the inputs is \(6, 4\), expected at least \(7, 2\)"),
        ({"inputs": tf.TensorSpec([2, 3])}, "the shape of the inputs is .*rank 4"),
    ],
    ids=lambda it: "-".join(it) if isinstance(it, dict) else "",
)
@pytest.mark.parametrize(("kind", "_"), POOLS)
def test_refuses(kind: str, _: Any, options: dict[str, Any], message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=f"^{kind} layer 'pool': {message}"):
        arguments = {"inputs": tf.TensorSpec(IMAGES.shape), "pool_size": 2, "strides": 2, **options}
        inputs = v1.placeholder(tf.float32, arguments.pop("inputs").shape)
        getattr(layers, kind)(inputs, name="pool", **arguments)
