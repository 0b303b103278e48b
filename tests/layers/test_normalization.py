from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers
from tpk.errors import ConfigError

v1 = tf.compat.v1
INPUTS = np.random.default_rng(4).normal(1.0, 2.0, size=[6, 5, 4, 3]).astype(np.float32)
FLAGS = {True: lambda: True, False: lambda: False, "tensor": lambda: v1.placeholder_with_default(True, [])}


def normalized(values: np.ndarray, axes: tuple[int, ...], epsilon: float = 1e-3) -> np.ndarray:
    mean, variance = values.mean(axes, keepdims=True), values.var(axes, keepdims=True)
    return (values - mean) / np.sqrt(variance + epsilon)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("flag", [True, "tensor"])
def test_batch_normalization_in_training(fused: bool, flag: Any) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        outputs = layers.batch_normalization(INPUTS, training=FLAGS[flag](), fused=fused, momentum=0.9)
        names = [variable.op.name for variable in v1.global_variables()]
        assert names == [f"batch_normalization/{it}" for it in ("gamma", "beta", "moving_mean", "moving_variance")]
        assert v1.trainable_variables() == v1.global_variables()[:2]
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        assert len(updates) == 2
        sess.run(v1.global_variables_initializer())
        np.testing.assert_allclose(sess.run(outputs), normalized(INPUTS, (0, 1, 2)), rtol=1e-3, atol=1e-4)
        sess.run(updates)
        moving_mean, moving_variance = sess.run(v1.global_variables()[2:])
    variance = INPUTS.var(axis=(0, 1, 2), ddof=1 if fused else 0)
    np.testing.assert_allclose(moving_mean, 0.1 * INPUTS.mean((0, 1, 2)), rtol=1e-4)
    np.testing.assert_allclose(moving_variance, 0.9 + 0.1 * variance, rtol=1e-4)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("flag", [False, "tensor"])
def test_batch_normalization_in_inference(fused: bool, flag: Any) -> None:
    mean, variance, gamma, beta = [0.5, 1.0, 1.5], [1.0, 4.0, 9.0], [1.0, 2.0, 3.0], [0.1, 0.2, 0.3]
    with tf.Graph().as_default(), v1.Session() as sess:
        training = FLAGS[flag]()
        outputs = layers.batch_normalization(
            INPUTS,
            training=training,
            fused=fused,
            moving_mean_initializer=v1.constant_initializer(mean),
            moving_variance_initializer=v1.constant_initializer(variance),
            gamma_initializer=v1.constant_initializer(gamma),
            beta_initializer=v1.constant_initializer(beta),
        )
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        assert len(updates) == (0 if flag is False else 2)
        sess.run(v1.global_variables_initializer())
        feed = {} if flag is False else {training: False}
        found, _ = sess.run([outputs, updates], feed)
        averages = sess.run(v1.global_variables()[2:])
    expected = (INPUTS - mean) / np.sqrt(np.array(variance) + 1e-3) * gamma + beta
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(averages, [mean, variance])


@pytest.mark.parametrize(
    ("shape", "axis", "parameters"),
    [
        ((8, 3), -1, (3,)),
        ((8, 3), 1, (3,)),
        ((8, 5, 3), 1, (5,)),
        ((8, 5, 4, 3), 2, (4,)),
        ((8, 5, 4, 3), (1, -1), (1, 5, 1, 3)),
        ((4, 3, 4, 5, 2), -1, (2,)),
    ],
)
def test_batch_normalization_over_any_axis(shape: tuple, axis: Any, parameters: tuple) -> None:
    inputs = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as sess:
        outputs = layers.batch_normalization(inputs, axis, training=True)
        assert {tuple(variable.shape) for variable in v1.global_variables()} == {parameters}
        sess.run(v1.global_variables_initializer())
        features = {one % len(shape) for one in (axis if isinstance(axis, tuple) else (axis,))}
        others = tuple(one for one in range(len(shape)) if one not in features)
        np.testing.assert_allclose(sess.run(outputs), normalized(inputs, others), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("fused", [True, False])
def test_half_precision_has_float32_variables(fused: bool) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        inputs = tf.constant(INPUTS, tf.float16)
        outputs = layers.batch_normalization(inputs, training=True, fused=fused)
        assert outputs.dtype == tf.float16
        assert {variable.dtype.base_dtype for variable in v1.global_variables()} == {tf.float32}
        sess.run(v1.global_variables_initializer())
        found = sess.run(outputs).astype(np.float32)
    np.testing.assert_allclose(found, normalized(INPUTS, (0, 1, 2)), atol=0.01)


@pytest.mark.parametrize(("center", "scale"), [(False, True), (True, False), (False, False)])
@pytest.mark.parametrize("fused", [True, False])
def test_batch_normalization_without_parameters(center: bool, scale: bool, fused: bool) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        outputs = layers.batch_normalization(INPUTS, center=center, scale=scale, fused=fused, training=True)
        expected = ["batch_normalization/gamma"] * scale + ["batch_normalization/beta"] * center
        assert [variable.op.name for variable in v1.trainable_variables()] == expected
        sess.run(v1.global_variables_initializer())
        np.testing.assert_allclose(sess.run(outputs), normalized(INPUTS, (0, 1, 2)), rtol=1e-3, atol=1e-4)


def test_the_fused_kernel_is_taken_where_there_is_one() -> None:
    def kernels(**options: Any) -> list[str]:
        with tf.Graph().as_default() as graph:
            dtype = options.pop("dtype", tf.float32)
            layers.batch_normalization(tf.constant(INPUTS, dtype), training=True, **options)
            return [op.type for op in graph.get_operations() if op.type.startswith("FusedBatchNorm")]

    assert kernels() == kernels(fused=True) == kernels(axis=1) == ["FusedBatchNormV3"]
    assert kernels(fused=False) == kernels(axis=2) == kernels(dtype=tf.float64) == []


MOMENTA = {
    "0": lambda: 0,
    "1": lambda: 1,
    "float": lambda: 0.5,
    "np.float64": lambda: np.float64(0.5),
    "np.float32": lambda: np.float32(0.5),
    "np.int64": lambda: np.int64(1),
    "array": lambda: np.array(0.5),
    "float16 tensor": lambda: tf.constant(0.5, tf.float16),
    "float32 tensor": lambda: tf.constant(0.5),
    "float64 tensor": lambda: tf.constant(0.5, tf.float64),
    "int32 tensor": lambda: tf.constant(0),
    "float64 variable": lambda: v1.get_variable("momentum", initializer=np.float64(0.5), trainable=False),
}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("flag", [True, "tensor"])
@pytest.mark.parametrize("momentum", MOMENTA.values(), ids=MOMENTA)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=lambda dtype: dtype.name)
def test_momentum_is_any_number(dtype: Any, momentum: Any, flag: Any, fused: bool) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        value = momentum()
        inputs = tf.constant(INPUTS, dtype)
        layers.batch_normalization(inputs, training=FLAGS[flag](), fused=fused, momentum=value)
        moving_mean = v1.global_variables()[-2]
        assert moving_mean.op.name == "batch_normalization/moving_mean"
        sess.run(v1.global_variables_initializer())
        sess.run(v1.get_collection(v1.GraphKeys.UPDATE_OPS))
        found, kept = sess.run([moving_mean, tf.cast(value, tf.float32)])
    np.testing.assert_allclose(found, (1 - kept) * INPUTS.mean((0, 1, 2)), rtol=2e-3)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("epsilon", [1, np.float64(0.5), np.float32(0.5), np.int64(1)], ids=repr)
def test_epsilon_is_any_number(epsilon: Any, fused: bool) -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        outputs = [
            layers.batch_normalization(INPUTS, training=True, fused=fused, epsilon=epsilon),
            layers.layer_normalization(INPUTS, (1, 2, 3), epsilon),
        ]
        sess.run(v1.global_variables_initializer())
        for found, axes in zip(sess.run(outputs), [(0, 1, 2), (1, 2, 3)], strict=True):
            np.testing.assert_allclose(found, normalized(INPUTS, axes, float(epsilon)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint8])
def test_integers_of_numpy_are_integers(integer: Any) -> None:
    with tf.Graph().as_default():
        layers.batch_normalization(INPUTS, axis=integer(2), training=integer(1))
        layers.batch_normalization(INPUTS, axis=[integer(1), integer(3)], name="both")
        layers.layer_normalization(INPUTS, axis=integer(3))
        shapes = [tuple(variable.shape) for variable in v1.trainable_variables()]
        assert shapes == [(4,), (4,), (1, 5, 1, 3), (1, 5, 1, 3), (3,), (3,)]
        assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == 2


def test_moving_averages_that_a_cond_cannot_update_are_an_error() -> None:
    with tf.Graph().as_default(), v1.variable_scope("model", use_resource=False):
        flag = FLAGS["tensor"]()
        layers.batch_normalization(INPUTS, training=flag)
        layers.batch_normalization(INPUTS, training=True, fused=False)
        message = r"layer 'model/bn': the moving average is .*'model/bn/moving_mean:0'.*expected a resource variable"
        with pytest.raises(ConfigError, match=message):
            layers.batch_normalization(INPUTS, training=flag, fused=False, name="bn")


def results(training: Any, axis: int) -> list[Any]:
    """Outputs, gradients, gradients of gradients, and variables after the updates."""
    values = np.moveaxis(INPUTS, -1, axis)
    with tf.Graph().as_default(), v1.Session() as sess:
        x = tf.constant(values)
        outputs = layers.batch_normalization(
            x,
            axis,
            training=training(),
            gamma_initializer=v1.random_uniform_initializer(0.5, 2.0, seed=1),
            moving_mean_initializer=v1.random_uniform_initializer(-1.0, 1.0, seed=3),
            moving_variance_initializer=v1.random_uniform_initializer(0.5, 2.0, seed=4),
        )
        fetches = [outputs]
        cost = tf.reduce_mean(outputs**3)
        for _ in range(2):
            fetches += tf.gradients(cost, [x, *v1.trainable_variables()])
            cost = tf.add_n([tf.reduce_sum(each**2) for each in fetches[-3:]])
        sess.run(v1.global_variables_initializer())
        values = sess.run(fetches)
        sess.run(v1.get_collection(v1.GraphKeys.UPDATE_OPS))
        return [*values, *sess.run(v1.global_variables())]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("axis", [-1, 1])
def test_a_tensor_as_training_gives_the_values_and_gradients_of_a_known_flag(
    control_flow: None, axis: int, training: bool
) -> None:
    found = results(lambda: v1.placeholder_with_default(training, []), axis)
    for one, other in zip(found, results(lambda: training, axis), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_a_gradient_through_a_cond_around_the_layer() -> None:
    def gradient(training: Any) -> np.ndarray:
        with tf.Graph().as_default(), v1.Session() as sess:
            x = tf.constant(INPUTS)

            def apply() -> Any:
                return layers.batch_normalization(x, training=training(), trainable=False)

            outputs = tf.cond(v1.placeholder_with_default(True, []), apply, lambda: x)
            gradients = tf.gradients(tf.reduce_mean(outputs**3), x)
            sess.run(v1.global_variables_initializer())
            return np.asarray(sess.run(gradients))

    np.testing.assert_allclose(gradient(FLAGS["tensor"]), gradient(FLAGS[True]), rtol=1e-3, atol=1e-6)


def test_a_frozen_layer_has_no_updates() -> None:
    with tf.Graph().as_default():
        layers.batch_normalization(INPUTS, training=True, trainable=False)
        assert not v1.trainable_variables()
        assert not v1.get_collection(v1.GraphKeys.UPDATE_OPS)


def test_every_application_of_shared_variables_updates_them() -> None:
    with tf.Graph().as_default():
        for reuse in (None, True):
            layers.batch_normalization(INPUTS, training=True, name="shared", reuse=reuse)
        assert len(v1.global_variables()) == 4
        assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == 4


def test_gradients_flow_through_the_moments_of_the_batch() -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        x = tf.constant(INPUTS)
        gradients = []
        for fused in (True, False):
            outputs = layers.batch_normalization(x, training=FLAGS["tensor"](), fused=fused)
            gradients += tf.gradients(tf.reduce_sum(outputs**3), x)
        sess.run(v1.global_variables_initializer())
        fused_gradient, composed_gradient = sess.run(gradients)
    assert np.abs(fused_gradient.sum(axis=(0, 1, 2))).max() < 1e-2  # a shift of the batch changes nothing
    np.testing.assert_allclose(fused_gradient, composed_gradient, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"renorm": True}, "renorm is True, expected False.*does not support"),
        ({"virtual_batch_size": 2}, "virtual_batch_size is 2, expected None.*does not support"),
        ({"adjustment": len}, "adjustment is .*, expected None.*does not support"),
        ({"momentum": "0.9"}, "momentum is '0.9', expected a number or a scalar tensor.*momentum=0.99"),
        ({"momentum": None}, "momentum is None, expected a number or a scalar tensor"),
        ({"momentum": np.array([0.9])}, r"momentum is array\(\[0.9\]\), expected a number or a scalar tensor"),
        ({"epsilon": "1e-3"}, "epsilon is '1e-3', expected a number.*epsilon=0.001"),
        ({"epsilon": None}, "epsilon is None, expected a number"),
        ({"training": "yes"}, "training is 'yes', expected True, False, or a scalar boolean tensor"),
        ({"axis": 4}, r"axis is 4, expected an integer in \[-4, 4\)"),
        ({"axis": "last"}, r"axis is '.*', expected an integer in \[-4, 4\)"),
        ({"axis": None}, r"axis is None, expected an integer in \[-4, 4\)"),
        ({"axis": [1, -3]}, r"axis is \[1, -3\], expected one axis, or several different ones"),
        ({"axis": []}, r"axis is \[\], expected one axis"),
        ({"gamma_initializer": "two"}, "the initializer of gamma is 'two', expected"),
        ({"moving_mean_initializer": 0}, "the initializer of moving_mean is 0, expected"),
        ({"beta_regularizer": "l2"}, "the regularizer of beta is 'l2', expected"),
    ],
    ids=lambda it: "-".join(it) if isinstance(it, dict) else "",
)
def test_batch_normalization_refuses(options: dict[str, Any], message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=f"^batch_normalization layer 'bn': {message}"):
        layers.batch_normalization(INPUTS, name="bn", **options)


@pytest.mark.parametrize(
    ("shape", "message"), [(None, "rank 1 or more"), ([2, None], "axis 1, the features, is known")]
)
def test_batch_normalization_refuses_shapes(shape: Any, message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=f"the shape of the inputs is .*{message}"):
        layers.batch_normalization(v1.placeholder(tf.float32, shape))


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_layer_normalization_of_16_bits_computes_in_32(dtype):
    x = np.random.default_rng(0).normal(100, 1, [4, 64]).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as sess:
        rounded = tf.cast(tf.cast(x, dtype), tf.float32)
        exact = layers.layer_normalization(rounded)
        half = layers.layer_normalization(tf.cast(x, dtype))
        assert half.dtype == dtype
        sess.run(v1.global_variables_initializer())
        expected, got = sess.run([exact, tf.cast(half, tf.float32)])
    np.testing.assert_allclose(got, expected, atol=0.01)
