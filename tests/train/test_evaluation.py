"""Evaluation of a trained model, without a training run."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1

WEIGHTS = {"w": np.float32([0.5, -2.0, 1.0]), "b": np.float32(0.25)}
RNG = np.random.default_rng(0)
X, LABEL = RNG.normal(size=[23, 3]).astype(np.float32), RNG.integers(0, 2, size=23)


class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, x, label):
        score = tf.tensordot(x, v1.get_variable("w", [3]), 1) + v1.get_variable("b", [])
        tf.not_equal(tf.cast(score > 0, tf.int64), label, name="incorrect_vector")
        tf.constant(1.0 if tpk.get_current_tower_context().is_training else 0.0, name="training")
        return tf.reduce_mean((score - tf.cast(label, tf.float32)) ** 2, name="cost")

    def optimizer(self):
        return v1.train.MomentumOptimizer(0.1, 0.9)


def batches():
    """Return the examples in batches of different sizes."""
    return tpk.BatchData(tpk.DataFromList(list(zip(X, LABEL, strict=True)), shuffle=False), 5, remainder=True)


def inferencers():
    return [tpk.ScalarStats(["cost", "training"]), tpk.ClassificationError()]


def expected(weights):
    score = X @ weights["w"] + weights["b"]
    return {
        "validation_cost": np.mean((score - LABEL) ** 2),
        "validation_error": np.mean((score > 0) != LABEL),
        "validation_training": 0.0,
    }


@pytest.mark.parametrize("devices", [None, "/cpu:0", ["/cpu:0", "/cpu:1"]])
def test_the_statistics_are_those_of_numpy(devices, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    statistics = tpk.evaluate(Model(), batches(), inferencers(), session_init=WEIGHTS, devices=devices)
    assert statistics == pytest.approx(expected(WEIGHTS), rel=1e-5)
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_the_weights_are_those_of_a_run(tmp_path):
    config = tpk.TrainConfig(
        model=Model(), dataflow=batches(), callbacks=["ModelSaver"], max_epoch=1, run_dir=tmp_path / "run"
    )
    tpk.launch_train_with_config(config)
    with tf.Graph().as_default() as outer:
        statistics = tpk.evaluate(Model(), batches(), inferencers(), session_init=tmp_path / "run")
        assert not outer.get_operations(), "the graph of the caller stays as it is"
    stored = tpk.CheckpointReader(tpk.find_checkpoint(tmp_path / "run"))
    assert statistics == pytest.approx(expected(stored), rel=1e-5)


def test_the_data_may_be_an_input_source():
    source = tpk.QueueInput(batches())
    statistics = tpk.evaluate(Model(), source, tpk.ClassificationError(), session_init=tpk.DictRestore(WEIGHTS))
    assert statistics == {"validation_error": pytest.approx(expected(WEIGHTS)["validation_error"])}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dataflow": []}, "an evaluation needs data, but FeedInput of list has length 0"),
        ({"dataflow": tpk.DataFromGenerator(lambda: iter(()))}, "delivered nothing, not even a first batch"),
        ({"inferencers": []}, r"takes Inferencers, such as tpk.ScalarStats\('cost'\), and not \[\]"),
        ({"inferencers": tpk.ScalarStats("costs")}, "no tensor 'costs'. Nearest: 'cost'"),
        ({"session_init": None}, "session_init is None, but the model has 2 variables: w, b"),
        ({"session_init": {"w": WEIGHTS["w"]}}, "has no value for 1 variable of the model: b"),
        ({"model": Model}, r"evaluate\(model=Model\): expected an instance. Write Model\(\)"),
        ({"model": "model"}, r"evaluate\(model='model'\): expected a tpk.ModelDesc"),
        ({"precision": "float8"}, "precision"),
        ({"devices": "/xpu:0"}, "xpu"),
    ],
)
def test_the_errors_say_what_is_wrong(changed, message):
    given = {"model": Model(), "dataflow": batches(), "inferencers": inferencers(), "session_init": WEIGHTS}
    with pytest.raises(tpk.TpkError, match=message):
        tpk.evaluate(**{**given, **changed})
