from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.errors import ConfigError

v1 = tf.compat.v1
RNG = np.random.default_rng(2)


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 3), (2, 1, 5, 3)])
def test_dense(shape: tuple) -> None:
    inputs = RNG.normal(size=shape).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as sess:
        outputs = layers.dense(inputs, 2, tf.nn.tanh, bias_initializer=v1.constant_initializer([0.5, -0.5]))
        assert outputs.shape == (*shape[:-1], 2)
        kernel, bias = v1.trainable_variables()
        assert [kernel.op.name, bias.op.name] == ["dense/kernel", "dense/bias"]
        sess.run(v1.global_variables_initializer())
        expected = np.tanh(inputs @ sess.run(kernel) + [0.5, -0.5])
        np.testing.assert_allclose(sess.run(outputs), expected, rtol=1e-5, atol=1e-6)


def test_kernels_start_glorot_uniform() -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        layers.dense(np.zeros([1, 300], np.float32), 200)
        sess.run(v1.global_variables_initializer())
        kernel, bias = sess.run(v1.trainable_variables())
    limit = np.sqrt(6 / (300 + 200))
    assert 0.999 * limit < np.abs(kernel).max() <= limit
    assert np.std(kernel) == pytest.approx(limit / np.sqrt(3), rel=0.01)
    assert not bias.any()


def test_dense_keeps_what_is_known_of_the_shape() -> None:
    with tf.Graph().as_default():
        assert layers.dense(v1.placeholder(tf.float32, [None, 5, 3]), 2).shape.as_list() == [None, 5, 2]


@pytest.mark.parametrize(
    ("shape", "units", "message"),
    [
        ([3], 2, r"the shape of the inputs is \(3,\), expected a shape of rank 2 or more"),
        (None, 2, "the shape of the inputs is None, expected a shape of rank 2 or more"),
        ([2, None], 2, "whose axis 1, the features, is known"),
        ([2, 3], 0, "units is 0, expected a positive integer"),
        ([2, 3], 1.5, r"units is 1\.5, expected a positive integer"),
    ],
)
def test_dense_refuses(shape: Any, units: Any, message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=f"^dense layer 'dense': .*{message}"):
        layers.dense(v1.placeholder(tf.float32, shape), units)


def test_dropout_in_training_and_in_inference() -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(0)
        training = v1.placeholder(tf.bool, [])
        outputs = layers.dropout(tf.ones([100, 100]), 0.25, training=training)
        sess.run(v1.global_variables_initializer())
        assert not sess.run(outputs, {training: False}).std()
        dropped = sess.run(outputs, {training: True})
    assert sorted(set(dropped.ravel())) == pytest.approx([0, 1 / 0.75])
    assert np.mean(dropped == 0) == pytest.approx(0.25, abs=0.02)


def test_dropout_with_one_decision_for_a_whole_axis() -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(0)
        x = v1.placeholder(tf.float32, [None, 5, 4])
        outputs = layers.dropout(x, 0.5, [None, 1, 4], training=True)
        sess.run(v1.global_variables_initializer())
        dropped = sess.run(outputs, {x: np.ones([30, 5, 4])})
    assert 0 < dropped.mean() < 2
    assert (dropped == dropped[:, :1]).all()


def test_dropout_repeats_with_a_seed() -> None:
    def dropped(seed: int) -> Any:
        with tf.Graph().as_default(), v1.Session() as sess:
            outputs = layers.dropout(tf.ones([50]), seed=seed, training=True)
            sess.run(v1.global_variables_initializer())
            return sess.run(outputs).tolist()

    assert dropped(1) == dropped(1) != dropped(2)


def test_dropout_drops_others_in_each_layer_and_step() -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(0)
        flag = v1.placeholder(tf.bool, [])
        both = [layers.dropout(tf.ones([50]), training=training) for training in (True, flag)]
        count = v1.train.get_global_step().assign_add(1)
        sess.run(v1.global_variables_initializer())
        feed = {flag: True}
        masks = []
        for _ in range(3):
            masks += sess.run(both, feed)
            again = sess.run(both, feed)
            np.testing.assert_array_equal(again, masks[-2:])
            sess.run(count)
    assert len({mask.tobytes() for mask in masks}) == 6


def test_dropout_without_training_or_rate_hands_the_inputs_on() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.ones([3])
        assert layers.dropout(x).op.type == layers.dropout(x, 0, training=True).op.type == "Identity"
        assert not any("Random" in op.type for op in graph.get_operations())
        assert not v1.global_variables()


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5])
def test_dropout_refuses_rates(rate: float) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=rf"^dropout layer 'drop': rate is {rate}, expected"):
        layers.dropout(tf.ones([3]), rate, name="drop")


@pytest.mark.parametrize("training", [2, "yes", np.ones([2])], ids=str)
def test_training_must_be_a_boolean(training: Any) -> None:
    message = "training is .*, expected True, False, or a scalar boolean tensor"
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=message):
        layers.dropout(tf.ones([3]), training=training)


@pytest.mark.parametrize(("dtype", "shape"), [(tf.int32, []), (tf.bool, [2])])
def test_training_must_be_a_scalar_boolean_tensor(dtype: Any, shape: list) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match="expected True, False, or a scalar boolean"):
        layers.dropout(tf.ones([3]), training=v1.placeholder(dtype, shape))


def test_the_tower_says_whether_it_is_trained() -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)

    def build(name: str) -> list[Any]:
        assert layers.dropout(tf.ones([3]), training=False).op.type == "Identity"
        return [layers.dropout(tf.ones([100])), layers.batch_normalization(tf.constant(x), name=name)]

    with tf.Graph().as_default(), v1.Session() as sess:
        outside = build("outside")
        assert not v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        with tpk.TrainTowerContext():
            trained = build("norm")
        assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == 2
        with tpk.PredictTowerContext():
            predicted = build("norm")
        sess.run(v1.global_variables_initializer())
        for (dropped, normalized), is_trained in ((outside, False), (trained, True), (predicted, False)):
            assert (sess.run(dropped).min() == 0) == is_trained
            assert (abs(sess.run(normalized).mean()) < 1e-5) == is_trained


def test_training_may_be_a_variable() -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        training = v1.get_variable("training", initializer=False)
        outputs = layers.dropout(tf.ones([50]), training=training)
        sess.run(v1.global_variables_initializer())
        assert sess.run(outputs).all()
        sess.run(training.assign(True))
        assert not sess.run(outputs).all()


@pytest.mark.parametrize("training", [np.True_, 1, True], ids=repr)
def test_training_may_be_any_boolean(training: Any) -> None:
    with tf.Graph().as_default() as graph:
        layers.dropout(tf.ones([3]), training=training)
        assert any("Random" in op.type for op in graph.get_operations())


@pytest.mark.parametrize(
    ("shape", "static", "expected"),
    [
        ((2, 3, 4), (None, 3, 4), (None, 12)),
        ((2, 3, 4), (2, None, 4), (2, None)),
        ((2, 3, 4), (None, None, 4), (None, None)),
        ((5,), (None,), (None, 1)),
        ((5, 2), (5, 2), (5, 2)),
    ],
)
def test_flatten(shape: tuple, static: tuple, expected: tuple) -> None:
    inputs = RNG.normal(size=shape).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as sess:
        x = v1.placeholder(tf.float32, static)
        outputs = layers.flatten(x)
        assert tuple(outputs.shape.as_list()) == expected
        np.testing.assert_array_equal(sess.run(outputs, {x: inputs}), inputs.reshape(shape[0], -1))


def test_flatten_gives_one_order_for_both_layouts() -> None:
    inputs = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    with tf.Graph().as_default(), v1.Session() as sess:
        last = layers.flatten(inputs)
        first = layers.flatten(inputs.transpose(0, 3, 1, 2), data_format="channels_first")
        np.testing.assert_array_equal(*sess.run([first, last]))


@pytest.mark.parametrize(
    ("shape", "data_format", "message"),
    [
        ([], "channels_last", "the shape of the inputs is .*rank 1 or more"),
        (None, "channels_last", "the shape of the inputs is None, expected a shape of rank 1 or more"),
        ([2, 3], "last", "data_format is 'last', expected 'channels_last' or 'channels_first'"),
    ],
)
def test_flatten_refuses(shape: Any, data_format: str, message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=f"^flatten layer 'flatten': {message}"):
        layers.flatten(v1.placeholder(tf.float32, shape), data_format=data_format)
