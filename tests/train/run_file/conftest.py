from __future__ import annotations

import importlib
import sys
import textwrap

import pytest

MODULE = """
import numpy as np
import tensorflow as tf

import tpk


class Linear(tpk.ModelDesc):
    def __init__(self, units=1, activation=None):
        self.units = units
        self.activation = activation

    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        hidden = tpk.layers.dense(x, self.units, activation=self.activation, name="hidden")
        return tf.reduce_mean((tpk.layers.dense(hidden, 1, name="out") - y) ** 2, name="cost")

    def optimizer(self):
        rate = tf.compat.v1.get_variable("learning_rate", initializer=0.05, trainable=False)
        return tf.compat.v1.train.AdamOptimizer(rate)


def data(batch=4, size=32):
    x = np.random.default_rng(0).normal(size=[size, 3]).astype(np.float32)
    points = list(zip(x, x.sum(axis=1, keepdims=True)))
    return tpk.BatchData(tpk.DataFromList(points, shuffle=True), batch)


def halved(epoch, rate):
    return rate / 2


def squared(x):
    return x * x


class Echo(tpk.Callback):
    def __init__(self, value):
        self.value = value


def nothing():
    return tf.no_op()


MODEL = Linear()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with the module `my_run`, where a training starts; what a run file does to the path is undone."""
    (tmp_path / "my_run.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_run", raising=False)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("my_run", None)


@pytest.fixture
def run_file(folder):
    """Writes a run file, and returns its path."""

    def write(text, name="run.toml"):
        path = folder / name
        path.write_text(textwrap.dedent(text))
        return path

    return write
