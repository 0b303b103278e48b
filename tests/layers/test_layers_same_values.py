"""Models built from the layers behave as if built from `tf.compat.v1.layers`: with it, and as it was recorded.

On TensorFlow 2.15 the two are run side by side. `golden.json` holds what `tf.compat.v1.layers` gave there, so newer
TensorFlows, which do not have it, are held to it, too. Dropout is not in the models: on purpose, it draws other numbers
than TensorFlow does. To record it anew, on 2.15:

    TPK_RECORD_GOLDEN=1 pytest tests/layers/test_layers_same_values.py
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers as tpk_layers

v1 = tf.compat.v1
GOLDEN = Path(__file__).with_name("golden.json")


def l2(weights: Any) -> Any:
    return 0.01 * tf.nn.l2_loss(weights)


def unit_norm(weights: Any) -> Any:
    return weights / tf.norm(weights)


def convnet(layers: Any, x: Any, is_training: Any) -> Any:
    x = layers.conv2d(x, 4, 3, padding="same", activation=tf.nn.relu, kernel_regularizer=l2)
    x = layers.max_pooling2d(x, 2, 2)
    x = layers.separable_conv2d(x, 6, 3, padding="same", depth_multiplier=2, dilation_rate=2)
    x = layers.batch_normalization(x, training=True, momentum=0.9)
    x = layers.average_pooling2d(x, 2, 1, "same")
    x = layers.conv2d(x, 3, (2, 1), strides=2, use_bias=False)
    x = layers.dense(layers.flatten(x), 5, activation=tf.nn.tanh, activity_regularizer=l2)
    return layers.dense(x, 3, name="logits", bias_initializer=v1.ones_initializer())


def decoder(layers: Any, x: Any, is_training: Any) -> Any:
    x = layers.dense(layers.flatten(x, data_format="channels_first"), 16, kernel_initializer="he_normal")
    x = tf.reshape(x, [-1, 2, 2, 4])
    x = layers.conv2d_transpose(x, 6, 3, strides=2, padding="same")
    x = layers.batch_normalization(x, training=True, center=False, fused=False)
    x = layers.conv2d_transpose(x, 2, (3, 2), strides=(1, 3), activation=tf.nn.relu, name="up")
    return layers.conv2d(x, 1, 1, kernel_initializer=v1.truncated_normal_initializer(stddev=0.5))


def scopes(layers: Any, x: Any, is_training: Any) -> Any:
    x = layers.flatten(x)
    with v1.variable_scope("encoder", initializer=v1.random_uniform_initializer(-0.1, 0.1), regularizer=l2):
        for _ in range(2):
            with v1.variable_scope(None, default_name="block"):
                hidden = layers.dense(layers.dense(x, 4), 4, kernel_regularizer=l2)
    with v1.variable_scope("twice", reuse=v1.AUTO_REUSE):
        first, second = (layers.dense(hidden, 3, name="shared", kernel_regularizer=l2) for _ in range(2))
    with v1.variable_scope("twice", reuse=True):
        third = layers.dense(hidden, 3, name="shared", kernel_regularizer=l2)
    return layers.dense(layers.dense(first + second + third, 4), 2)


def frozen(layers: Any, x: Any, is_training: Any) -> Any:
    x = layers.conv2d(x, 3, 3, trainable=False, kernel_regularizer=l2)
    x = layers.batch_normalization(x, training=True, trainable=False)
    x = layers.batch_normalization(x, scale=False, axis=1)
    x = layers.dense(layers.flatten(x), 4, kernel_constraint=unit_norm, bias_constraint=unit_norm)
    return layers.dense(layers.batch_normalization(x, training=True, momentum=0.5), 2)


def channels_first(layers: Any, x: Any, is_training: Any) -> Any:
    """Without a GPU, Keras adds other ops here, so the layers after them have seeds."""
    x = tf.transpose(x, [0, 3, 1, 2])
    x = layers.conv2d_transpose(x, 4, 3, strides=(1, 2), data_format="channels_first")
    x = layers.batch_normalization(x, axis=1, training=True, fused=False)
    x = layers.flatten(x, data_format="channels_first")
    return layers.dense(x, 2, kernel_initializer=v1.glorot_uniform_initializer(seed=7))


def many_axes(layers: Any, x: Any, is_training: Any) -> Any:
    x = layers.dense(x, 4)
    x = layers.batch_normalization(x, axis=[1, 3], training=True)
    x = layers.batch_normalization(tf.reshape(x, [-1, 16, 4]), axis=1, training=True)
    return layers.dense(x, 2, activation="sigmoid")


def training_tensor(layers: Any, x: Any, is_training: Any) -> Any:
    x = layers.conv2d(x, 4, 3)
    hidden = layers.dense(layers.flatten(x), 4)
    x = layers.batch_normalization(x, training=is_training)
    hidden = layers.batch_normalization(hidden, training=is_training, fused=False, momentum=0.7)
    return tf.reduce_mean(x, [1, 2]) + hidden


MODELS: list[Callable[..., Any]] = [*(convnet, decoder, scopes, frozen, channels_first, many_axes, training_tensor)]
KEYS = v1.GraphKeys
COLLECTIONS = (*(KEYS.GLOBAL_VARIABLES, KEYS.TRAINABLE_VARIABLES, KEYS.UPDATE_OPS, KEYS.REGULARIZATION_LOSSES),)


def build(layers: Any, model: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """Build `model`; returns its inputs, its training flag, and its outputs."""
    v1.set_random_seed(1234)
    images = v1.placeholder_with_default(data(), [None, 8, 8, 3], name="images")
    is_training = v1.placeholder_with_default(True, [], name="is_training")
    return images, is_training, model(layers, images, is_training)


def data() -> np.ndarray:
    return np.random.default_rng(0).normal(0.5, 1.0, [4, 8, 8, 3]).astype(np.float32)


def behaviour(layers: Any, model: Callable[..., Any]) -> dict[str, Any]:
    """All that a training sees of the model: names, shapes, values, gradients, and what the updates do."""
    with tf.Graph().as_default() as graph:
        _, is_training, outputs = build(layers, model)
        collections = {key: [item.name for item in graph.get_collection(key)] for key in COLLECTIONS}
        variables, trainable = v1.global_variables(), v1.trainable_variables()
        losses, updates = v1.losses.get_regularization_losses(), graph.get_collection(KEYS.UPDATE_OPS)
        gradients = tf.gradients(tf.reduce_sum(tf.square(outputs)) + sum(losses), trainable)
        tensors = {f"initial {variable.name}": variable for variable in variables}
        tensors |= {f"gradient {one.name}": it for one, it in zip(trainable, gradients, strict=True)}
        tensors |= {f"loss {loss.name}": loss for loss in losses} | {"outputs": outputs}
        # A session that is open while Keras builds makes it draw initial values, and so changes the next ones.
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            values = sess.run({name: tf.convert_to_tensor(it) for name, it in tensors.items()})
            sess.run(updates)
            sess.run(updates, {is_training: False})
            values |= sess.run({f"updated {variable.name}": variable for variable in variables})
            values["in inference"] = sess.run(outputs, {is_training: False})
    return {"collections": collections, "values": values}


@pytest.mark.parametrize("model", MODELS, ids=lambda it: it.__name__)
def test_behaves_like_tf_layers(tf_layers: SimpleNamespace, model: Callable[..., Any]) -> None:
    ours, theirs = behaviour(tpk_layers, model), behaviour(tf_layers, model)
    assert ours["collections"] == theirs["collections"]
    assert list(ours["values"]) == list(theirs["values"])
    # TensorFlow's fused kernel, which the layers leave out where training is a tensor, rounds in another way.
    rtol, atol = (1e-4, 1e-5) if model is training_tensor else (1e-6, 1e-7)
    for name, value in ours["values"].items():
        np.testing.assert_allclose(value, theirs["values"][name], rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("model", MODELS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("writer", ["tpk", "tf"])
def test_checkpoints_load(tf_layers: SimpleNamespace, model: Callable[..., Any], writer: str, tmp_path: Path) -> None:
    write, read = (tpk_layers, tf_layers) if writer == "tpk" else (tf_layers, tpk_layers)
    path = str(tmp_path / "model")
    with tf.Graph().as_default():
        _, is_training, outputs = build(write, model)
        changes = [variable.assign_add(variable * 0.5 + 0.1) for variable in v1.global_variables()]
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            sess.run(changes)
            v1.train.Saver().save(sess, path, write_meta_graph=False)
            expected = sess.run(outputs, {is_training: False})
    with tf.Graph().as_default():
        _, is_training, outputs = build(read, model)
        with v1.Session() as sess:
            v1.train.Saver().restore(sess, path)
            np.testing.assert_allclose(sess.run(outputs, {is_training: False}), expected, rtol=1e-6, atol=1e-6)


def summary(of: dict[str, Any]) -> dict[str, Any]:
    """Reduce each array to a few numbers, which change with any change of the array."""

    def numbers(value: np.ndarray) -> dict[str, Any]:
        flat = np.asarray(value, np.float64).ravel()
        weights = np.cos(np.arange(flat.size))
        ends = [flat[0], flat[-1], flat @ weights, np.abs(flat).sum()]
        return {"shape": list(np.shape(value)), "first, last, dot, sum": [float(f"{it:.8g}") for it in ends]}

    values = {name: numbers(value) for name, value in of["values"].items()}
    return {"collections": of["collections"], "values": values}


def assert_as_recorded(found: dict[str, Any], recorded: dict[str, Any]) -> None:
    assert found["collections"] == recorded["collections"]
    assert list(found["values"]) == list(recorded["values"])
    for name, expected in recorded["values"].items():
        value = found["values"][name]
        assert value["shape"] == expected["shape"], name
        # Initial values are drawn, not computed: they differ by no more than the last bit.
        tolerance = 1e-6 if name.startswith("initial") else 2e-4
        numbers = "first, last, dot, sum"
        np.testing.assert_allclose(value[numbers], expected[numbers], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("model", MODELS, ids=lambda it: it.__name__)
def test_behaves_as_recorded(model: Callable[..., Any]) -> None:
    recorded = json.loads(GOLDEN.read_text())[model.__name__]
    assert_as_recorded(summary(behaviour(tpk_layers, model)), recorded)


def test_the_record_is_what_tf_layers_gives(tf_layers: SimpleNamespace) -> None:
    found = {model.__name__: summary(behaviour(tf_layers, model)) for model in MODELS}
    if os.environ.get("TPK_RECORD_GOLDEN"):
        text = json.dumps(found, indent=1)
        GOLDEN.write_text(re.sub(r"\[[^][{}]*\]", lambda match: " ".join(match[0].split()), text) + "\n")
    recorded = json.loads(GOLDEN.read_text())
    assert list(found) == list(recorded)
    for name, expected in recorded.items():
        assert_as_recorded(found[name], expected)
