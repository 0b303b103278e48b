from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.predict import PredictConfig

WEIGHTS = {
    "fc/W": np.arange(6, dtype=np.float32).reshape(3, 2),
    "fc/b": np.array([0.5, -1], np.float32),
}
SIGNATURE = [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 2], tf.float32, "label")]


def linear(x, label):
    with tf.compat.v1.variable_scope("fc"):
        weights = tf.compat.v1.get_variable("W", [3, 2])
        bias = tf.compat.v1.get_variable("b", [2], initializer=tf.compat.v1.zeros_initializer())
    prediction = tf.add(x @ weights, bias, name="prediction")
    tf.reduce_sum(prediction, axis=1, name="total")
    return tf.reduce_mean((prediction - label) ** 2, name="cost")


class Linear(tpk.ModelDesc):
    def inputs(self):
        return SIGNATURE

    def build_graph(self, x, label):
        return linear(x, label)

    def optimizer(self):
        return tf.compat.v1.train.AdamOptimizer(0.01)


def expected(x, weights=WEIGHTS):
    """Return the outputs of the model for `x`, computed with NumPy."""
    return np.asarray(x, np.float32) @ weights["fc/W"] + weights["fc/b"]


@pytest.fixture
def model():
    return Linear()


@pytest.fixture
def config_of():
    """Makes configs of the linear model with known weights, but for what is said otherwise."""

    def make(**options):
        given = {"model": Linear(), "session_init": WEIGHTS, "output_names": ["prediction"]}
        return PredictConfig(**{**given, **options})

    return make


@pytest.fixture
def by_numpy():
    return expected


@pytest.fixture
def batches():
    """Five batches of different sizes."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal([size, 3], dtype=np.float32) for size in (4, 1, 3, 4, 2)]
