"""Errors for things that a Keras model must not do in a tower function."""

from __future__ import annotations

import re

import pytest
import tensorflow as tf
from tpk_keras import KerasModel

import tpk
from tpk.errors import ConfigError, TowerError

v1 = tf.compat.v1


@pytest.fixture
def x():
    with tf.Graph().as_default():
        yield v1.placeholder(tf.float32, [None, 3], "x")


def call_in_tower(func, x, total=1, vs_name=""):
    with tpk.TrainTowerContext(total=total, ns_name="tower0", vs_name=vs_name):
        return tpk.TowerFunc(func, [tf.TensorSpec([None, 3], tf.float32, "x")])(x)


def net_of(keras, build, **options):
    return KerasModel(build, keras=keras.__name__, **options)


@pytest.mark.parametrize("vs_name", ["", "tower0"])
def test_calling_a_plain_keras_layer_breaks_a_rule(keras, x, vs_name):
    with pytest.raises(TowerError, match=r"Keras created variables by itself in .*kernel.*bias.*KerasModel"):
        call_in_tower(lambda x: keras.layers.Dense(2)(x), x, vs_name=vs_name)


def test_variables_that_keras_is_only_around_break_none(keras2, x):
    class Own(keras2.layers.Layer):
        def call(self, x):
            return x * v1.get_variable("scale", [3])

    call_in_tower(net_of(keras2, Own), x)
    assert [variable.name for variable in v1.trainable_variables()] == ["scale:0"]


def test_a_model_may_be_frozen(keras, x):
    net = net_of(keras, lambda: keras.layers.Dense(2))

    def tower(x):
        with tpk.freeze_variables(stop_gradient=False, skip_collection=True):
            return net(x)

    call_in_tower(tower, x)
    assert v1.trainable_variables() == []
    assert len(v1.get_collection("model_variables")) == len(v1.global_variables()) == 2


def test_keras_2_needs_variables_to_assign_to(keras2, x):
    net = net_of(keras2, lambda: keras2.layers.Dense(2))

    def tower(x):
        with tpk.freeze_variables():
            return net(x)

    with pytest.raises(TowerError, match=r"for '.*kernel' a custom getter.* returned a tensor. Call the model outside"):
        call_in_tower(tower, x)


def test_a_model_that_was_built_before_is_explained(keras):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 3], "x")
        with pytest.raises(RuntimeError, match="capture an EagerTensor") as caught:
            call_in_tower(model, x)
    assert "tpk_keras.KerasModel(build)" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("wrong", [None, "layer"])
def test_a_model_needs_a_function_that_builds_it(keras, wrong):
    with pytest.raises(ConfigError, match="expected a function without arguments"):
        KerasModel(keras.layers.Dense(2) if wrong == "layer" else wrong)


def test_a_model_needs_a_name_of_a_scope(keras):
    with pytest.raises(ConfigError, match=r"name='a b'.*name of a TensorFlow scope"):
        net_of(keras, lambda: keras.layers.Dense(2), name="a b")


def test_a_model_is_not_called_eagerly(keras):
    with pytest.raises(TowerError, match="executes eagerly"):
        net_of(keras, lambda: keras.layers.Dense(2))(tf.ones([1, 3]))


def test_two_models_need_two_names(keras, x):
    first, second = (net_of(keras, lambda: keras.layers.Dense(2)) for _ in range(2))
    with pytest.raises(TowerError, match=r"'model/(dense/)?kernel'.*a different name"):
        call_in_tower(lambda x: first(x) + second(x), x)


def test_two_models_with_names_have_scopes(keras, x):
    first, second = (net_of(keras, lambda: keras.layers.Dense(2), name=name) for name in ("first", "second"))
    call_in_tower(lambda x: first(x) + second(x), x)
    assert {re.sub("/.*", "", variable.name) for variable in v1.trainable_variables()} == {"first", "second"}


def test_the_function_must_return_a_model_of_the_expected_keras(keras, x):
    with pytest.raises(ConfigError, match=r"returned 7, a builtins.int; expected a model or a layer of .*keras"):
        call_in_tower(net_of(keras, lambda: 7), x)
    with pytest.raises(ConfigError, match=r"cannot be imported.*Install no_keras"):
        call_in_tower(KerasModel(lambda: 7, keras="no_keras"), x)


def test_a_model_of_keras_2_is_an_error_for_keras_3(keras3, x):
    tf_keras = pytest.importorskip("tf_keras")
    with pytest.raises(ConfigError, match=r"tf_keras.*Dense; expected a model or a layer of keras 3.*keras='tf_keras'"):
        call_in_tower(KerasModel(lambda: tf_keras.layers.Dense(2)), x)


def test_losses_are_there_once_the_model_was_called(keras, x):
    net = net_of(keras, lambda: keras.layers.Dense(2))
    with pytest.raises(TowerError, match="was not called in this tower"):
        call_in_tower(lambda x: net.losses, x)
    call_in_tower(net, x)
    with pytest.raises(TowerError, match="was not called in this tower"):
        _ = net.losses
    with pytest.raises(TowerError, match="no tower in which KerasModel"):
        net.variable_names(tf.Graph())


def test_layers_that_synchronize_by_tf_distribute_are_an_error(keras, x):
    net = net_of(keras, lambda: keras.Sequential([keras.layers.BatchNormalization(synchronized=True)]))
    with pytest.raises(TowerError, match=r"'batch_normalization' has synchronized=True.*tpk\.layers"):
        call_in_tower(net, x, total=2)


def test_layers_that_assign_trainable_variables_are_an_error(keras3, x):
    net = net_of(keras3, lambda: keras3.layers.SpectralNormalization(keras3.layers.Dense(2)))
    with pytest.raises(TowerError, match=r"assigns its trainable variable '.*kernel'"):
        call_in_tower(net, x)


def test_random_numbers_without_a_generator_are_refused(keras3, x):
    class Noise(keras3.layers.Layer):
        def call(self, x):
            return x + keras3.random.normal((3,))

    with pytest.raises(TowerError, match=r"not part of the Keras model.*SeedGenerator"):
        call_in_tower(net_of(keras3, Noise), x)


def test_a_model_that_was_built_before_is_an_error(keras3):
    model = keras3.Sequential([keras3.Input((3,)), keras3.layers.Dense(2)])
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 3], "x")
        with pytest.raises(ConfigError, match=r"was built before.*session_init=tpk_keras\.KerasRestore"):
            call_in_tower(net_of(keras3, lambda: model), x)


def test_weights_that_keras_2_would_lose_are_an_error(keras2, tmp_path):
    def build():
        return keras2.Sequential([keras2.Input((3,)), keras2.layers.Dense(2)])

    build().save_weights(tmp_path / "saved.weights.h5")

    def build_and_load():
        model = build()
        model.load_weights(tmp_path / "saved.weights.h5")
        return model

    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 3], "x")
        with pytest.raises(ConfigError, match=r"gives values to the weights.*session_init=tpk_keras\.KerasRestore"):
            call_in_tower(net_of(keras2, build_and_load), x)


def test_a_model_of_keras_2_hands_on_whether_it_trains(keras2, x):
    class Deaf(keras2.Model):
        def __init__(self):
            super().__init__()
            self.drop = keras2.layers.Dropout(0.5, name="drop")

        def call(self, x):
            return self.drop(x)

    with pytest.raises(TowerError, match=r"differently in training \(drop\).*training=None"):
        call_in_tower(net_of(keras2, Deaf), x)
