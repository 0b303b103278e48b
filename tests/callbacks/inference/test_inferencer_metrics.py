from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from evaluations import BATCHES, train

import tpk
from tpk.callbacks.inference.inferencers import MetricInferencer
from tpk.callbacks.inference.runner import DataParallelInferenceRunner

metrics = tf.compat.v1.metrics

SCORES = {"labels": "y", "predictions": "score"}
CLASSES = {"labels": "y", "predictions": "incorrect_vector"}

METRICS = {
    "accuracy": functools.partial(MetricInferencer, metrics.accuracy, CLASSES),
    "auc": functools.partial(MetricInferencer, metrics.auc, SCORES, num_thresholds=50),
    "mean": functools.partial(MetricInferencer, metrics.mean, {"values": "score"}),
    "weighted": functools.partial(
        MetricInferencer, metrics.mean, {"values": "score", "weights": "incorrect_vector"}, name="weighted"
    ),
    "mean_iou": functools.partial(MetricInferencer, metrics.mean_iou, CLASSES, num_classes=2),
    "precision": functools.partial(MetricInferencer, metrics.precision, CLASSES),
    "thresholds": functools.partial(
        MetricInferencer, metrics.precision_at_thresholds, SCORES, name="at", thresholds=[0.3, 0.6]
    ),
    "rmse": functools.partial(
        MetricInferencer, metrics.root_mean_squared_error, {"labels": "incorrect_vector", "predictions": "score"}
    ),
    "sensitivity": functools.partial(MetricInferencer, metrics.sensitivity_at_specificity, SCORES, specificity=0.5),
    "false_positives": functools.partial(MetricInferencer, metrics.false_positives, CLASSES),
    "partial": functools.partial(MetricInferencer, functools.partial(metrics.recall), CLASSES),
}


def of_tensorflow(inferencer, options, weight):
    """What the metric is by itself, on all batches at once."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        x, y = (tf.constant(np.concatenate(parts)) for parts in zip(*BATCHES, strict=True))
        score = tf.sigmoid(x * (weight + 1))
        wrong = tf.cast(tf.not_equal(score > 0.5, y > 0), tf.float32)
        tensors = {"y": y, "score": score, "incorrect_vector": wrong}
        arguments = {argument: tensors[name] for argument, name in inferencer.tensors.items()}
        value, update = inferencer.metric(**arguments, **options)
        sess.run(tf.compat.v1.local_variables_initializer())
        sess.run(update)
        return np.atleast_1d(sess.run(value)).tolist()


@pytest.mark.parametrize(
    "make", [tpk.InferenceRunner, functools.partial(DataParallelInferenceRunner, devices=3)], ids=["one", "parallel"]
)
def test_they_are_what_tensorflow_computes_on_all_examples_at_once(make):
    inferencers = [make_metric() for make_metric in METRICS.values()]
    history = train(make(BATCHES, inferencers))
    # In both epochs: each pass begins anew.
    for epoch in (0, 1):
        for inferencer, made in zip(inferencers, METRICS.values(), strict=True):
            options = {name: value for name, value in made.keywords.items() if name != "name"}
            values = [history[name][epoch] for name in inferencer.statistics]
            expected = of_tensorflow(inferencer, options, 2.0 * (epoch + 1))
            assert values == pytest.approx(expected, rel=1e-5), inferencer.name
    assert {"validation_auc", "at_0", "at_1", "validation_recall"} <= history.keys()


def test_nothing_of_them_is_saved_or_trained(tmp_path):
    def counted(values):
        count = tf.compat.v1.get_variable("count", initializer=0.0, aggregation=tf.VariableAggregation.SUM)
        return count.read_value(), count.assign_add(tf.cast(tf.size(values), tf.float32))

    runner = tpk.InferenceRunner(BATCHES, MetricInferencer(counted, {"values": "x"}))
    history = train(runner, tpk.ModelSaver(checkpoint_dir=tmp_path))
    assert history["validation_counted"] == [22, 22]
    assert {name for name, _ in tf.train.list_variables(str(tmp_path))} == {"w", "global_step"}


@pytest.mark.parametrize(
    ("metric", "tensors", "message"),
    [
        ("auc", {"labels": "y"}, "takes a function such as"),
        (metrics.auc, ["y", "score"], "expected names of tensors by argument"),
    ],
)
def test_what_is_no_metric_is_an_error(metric, tensors, message):
    with pytest.raises(tpk.ConfigError, match=message):
        MetricInferencer(metric, tensors)


@pytest.mark.parametrize(
    ("inferencer", "message"),
    [
        (MetricInferencer(metrics.auc, {"label": "y"}), "the metric auc of 'validation_auc' failed.*'label'"),
        (MetricInferencer(lambda x: (tf.reshape(x, [-1, 1]), x), {"x": "x"}), "must return a scalar, or a vector"),
    ],
)
def test_a_metric_that_does_not_fit_is_an_error_before_the_training(inferencer, message):
    with pytest.raises(tpk.ConfigError, match=message):
        train(tpk.InferenceRunner(BATCHES, inferencer))


def test_several_towers_refuse_a_metric_that_is_no_sum():
    def largest(values):
        variable = tf.Variable(0.0, trainable=False, name="largest")
        return variable.read_value(), variable.assign(tf.maximum(variable, tf.reduce_max(values)))

    with pytest.raises(tpk.ConfigError, match=r"largest.* need not be sums"):
        train(DataParallelInferenceRunner(BATCHES, MetricInferencer(largest, {"values": "x"}), devices=2))
