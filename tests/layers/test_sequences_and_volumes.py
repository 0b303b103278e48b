from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers
from tpk.errors import ConfigError

v1 = tf.compat.v1
SEQUENCES = np.random.default_rng(6).normal(size=[2, 9, 4]).astype(np.float32)


@pytest.mark.parametrize("kind", ["conv1d", "separable_conv1d"])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_a_causal_convolution_sees_no_later_input(kind: str, data_format: str) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        x = tf.constant(SEQUENCES)
        first = data_format == "channels_first"
        outputs = getattr(layers, kind)(
            *(tf.transpose(x, [0, 2, 1]) if first else x, 3, 3),
            padding="causal",
            data_format=data_format,
            dilation_rate=2,
        )
        outputs = tf.transpose(outputs, [0, 2, 1]) if first else outputs
        assert outputs.shape == (2, 9, 3)
        gradient = tf.gradients(outputs[:, 5], x)[0]
        if first:
            return  # CPUs have no kernel
        sess.run(v1.global_variables_initializer())
        sees = np.abs(sess.run(gradient)).sum((0, 2)) > 0
    assert sees.tolist() == [position in (1, 3, 5) for position in range(9)]


def test_only_convolutions_of_sequences_are_causal() -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match="padding is 'causal', expected 'valid' or 'same'"):
        layers.conv2d(tf.zeros([1, 8, 8, 3]), 4, 3, padding="causal")
    with tf.Graph().as_default(), pytest.raises(ConfigError, match="'full', expected 'valid' or 'same' or 'causal'"):
        layers.conv1d(tf.zeros([1, 8, 3]), 4, 3, padding="full")


CONVOLUTIONS = ["conv1d", "conv1d_transpose", "separable_conv1d", "conv3d", "conv3d_transpose"]


@pytest.mark.parametrize("kind", [*CONVOLUTIONS, "max_pooling1d", "average_pooling3d"])
def test_refusals_name_the_layer(kind: str) -> None:
    rank = 1 if "1d" in kind else 3
    sizes = {1: "a positive integer or a tuple of 1", 3: "a positive integer or a tuple of 3"}
    axes = {1: "batch, length, channels", 3: "batch, depth, height, width, channels"}
    size = "pool_size" if "pooling" in kind else "kernel_size"
    options: dict[str, Any] = {size: 2, "strides": 1} if "pooling" in kind else {"filters": 4, size: 2}
    wrong: list[tuple[list[int | None], dict[str, Any], str]] = [
        ([1, *[8] * rank, 3], {size: (2, 2)}, rf"{size} is \(2, 2\), expected {sizes[rank]}"),
        ([1, *[8] * rank, 3], {"strides": 0}, f"strides is 0, expected {sizes[rank]}"),
        ([1, 3], {}, rf"the shape of the inputs is \(1, 3\), expected a shape of rank {rank + 2}: \({axes[rank]}\)"),
    ]
    if "pooling" not in kind:
        wrong += [([1, *[8] * rank, None], {}, f"whose axis {rank + 1}, the channels, is known")]
        wrong += [([1, *[8] * rank, 3], {"filters": 0}, "filters is 0, expected a positive integer")]
    if "transpose" not in kind:
        wrong += [([1, *[8] * rank, 3], {size: 9}, r"\(.*\) of the inputs is \(8,.*expected at least \(9,.*'same'")]
    for shape, given, message in wrong:
        with tf.Graph().as_default(), pytest.raises(ConfigError, match=f"^{kind} layer 'bad': .*{message}"):
            getattr(layers, kind)(v1.placeholder(tf.float32, shape), name="bad", **{**options, **given})


@pytest.mark.parametrize("kind", ["conv1d", "conv3d", "separable_conv1d"])
def test_strides_and_dilation_exclude_each_other(kind: str) -> None:
    x = np.zeros([1, *[9] * (1 if "1d" in kind else 3), 2], np.float32)
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=r"\(strides, dilation_rate\) is"):
        getattr(layers, kind)(x, 4, 3, strides=2, dilation_rate=2)


@pytest.mark.parametrize("kind", ["global_max_pooling", "global_average_pooling"])
def test_global_pooling_refuses(kind: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=f"^{kind} layer '{kind}': .*rank 3 or more"):
        getattr(layers, kind)(tf.zeros([2, 3]))
    with tf.Graph().as_default(), pytest.raises(ConfigError, match="data_format is 'NHWC', expected 'channels_last'"):
        getattr(layers, kind)(tf.zeros([2, 4, 4, 3]), "NHWC")


@pytest.mark.parametrize("axis", [-1, 1])
def test_maxout(axis: int) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        x = v1.placeholder(tf.float32, [None, 8, 4])
        outputs = layers.maxout(x, 2, axis)
        assert outputs.shape.as_list() == ([None, 2, 4] if axis == 1 else [None, 8, 2])
        found = sess.run(outputs, {x: SEQUENCES[:, :8]})
    shape = [2, 2, 4, 4] if axis == 1 else [2, 8, 2, 2]
    np.testing.assert_array_equal(found, SEQUENCES[:, :8].reshape(shape).max(2 if axis == 1 else 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: layers.maxout(x, 3), r"maxout layer 'maxout': num_units is 3, expected a divisor of the 4 features"),
        (lambda x: layers.maxout(x, 2, 3), r"maxout layer 'maxout': axis is 3, expected an integer in \[-3, 3\)"),
        (lambda x: layers.prelu(x, shared_axes=0), "prelu layer 'prelu': shared_axes is 0, expected axes other than"),
        (lambda x: layers.prelu(x, shared_axes=[1, 1]), "shared_axes is .*expected one axis, or several different"),
        (lambda x: layers.group_normalization(x, 3), "groups is 3, expected a divisor of the 4 channels of axis 2"),
        (lambda x: layers.group_normalization(x), "groups is 32, expected a divisor of the 4 channels"),
        (lambda x: layers.group_normalization(x, 0), "groups is 0, expected a positive integer"),
        (lambda x: layers.group_normalization(x, 2, axis=0), "axis is 0, expected the axis of the channels"),
        (lambda x: layers.instance_normalization(x[0]), "instance_normalization .*a shape of rank 3 or more"),
        (lambda x: layers.instance_normalization(x, epsilon="a"), "epsilon is 'a', expected a number"),
        (lambda x: layers.layer_normalization(x, axis=[]), r"axis is \[\], expected one axis, or several"),
        (
            lambda x: layers.layer_normalization(v1.placeholder(tf.float32, [2, None])),
            "layer_normalization .*whose axis 1, the features, is known",
        ),
    ],
)
def test_refuses(call: Any, message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=message):
        call(tf.constant(SEQUENCES))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=lambda it: it.name)
@pytest.mark.parametrize("kind", ["layer_normalization", "group_normalization", "instance_normalization"])
def test_normalizations_of_16_bits_compute_in_32(kind: str, dtype: Any) -> None:
    options = {"groups": 2} if kind == "group_normalization" else {}
    with tf.Graph().as_default(), v1.Session() as sess:
        x = tf.cast(tf.constant(SEQUENCES) + 30, dtype)
        half = getattr(layers, kind)(x, **options)
        exact = getattr(layers, kind)(tf.cast(x, tf.float32), **options)
        assert half.dtype == dtype
        assert {variable.dtype.base_dtype for variable in v1.global_variables()} == {tf.float32}
        sess.run(v1.global_variables_initializer())
        found, expected = sess.run([tf.cast(half, tf.float32), tf.cast(tf.cast(exact, dtype), tf.float32)])
    np.testing.assert_array_equal(found, expected)


def test_order_of_the_variables_is_that_of_keras_and_regularizers_count() -> None:
    with tf.Graph().as_default():
        for kind in ("layer_normalization", "group_normalization", "instance_normalization"):
            layers_of = getattr(layers, kind)
            options = {"groups": 2} if kind == "group_normalization" else {}
            layers_of(SEQUENCES, beta_regularizer=tf.nn.l2_loss, gamma_constraint=tf.nn.relu, **options)
            gamma, beta = v1.trainable_variables(f"{kind}/")
            assert [gamma.op.name, beta.op.name] == [f"{kind}/gamma", f"{kind}/beta"]
            assert gamma.constraint is tf.nn.relu and beta.constraint is None
        layers.prelu(SEQUENCES, alpha_regularizer=tf.nn.l2_loss, alpha_constraint=tf.nn.relu)
        assert v1.trainable_variables("prelu/")[0].constraint is tf.nn.relu
        assert [loss.op.name for loss in v1.losses.get_regularization_losses()] == [
            "layer_normalization/beta/Regularizer/L2Loss",
            "group_normalization/beta/Regularizer/L2Loss",
            "instance_normalization/beta/Regularizer/L2Loss",
            "prelu/alpha/Regularizer/L2Loss",
        ]
