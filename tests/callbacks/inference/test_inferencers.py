from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from evaluations import BATCHES, train
from sklearn.metrics import f1_score, precision_score, recall_score

import tpk
from tpk.callbacks.inference.inferencers import BinaryClassificationStats

X = np.concatenate([x for x, _ in BATCHES])
Y = np.concatenate([y for _, y in BATCHES])
# Of the first epoch: the weight has become 2.
SCORES = 1 / (1 + np.exp(-3 * X))


def test_binary_statistics_are_those_of_scikit_learn():
    stats = [
        BinaryClassificationStats("score", "y"),
        BinaryClassificationStats("score", "y", prefix="strict", threshold=0.9),
    ]
    history = train(tpk.InferenceRunner(BATCHES, stats), epochs=1)
    scores = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    for (prefix, threshold), name in itertools.product([("val", 0.5), ("strict", 0.9)], scores):
        assert history[f"{prefix}_{name}"] == [pytest.approx(scores[name](Y, threshold < SCORES))]


def results(inferencer, *batches):
    inferencer.before_inference()
    for batch in batches:
        inferencer.on_fetches(batch)
    return inferencer.after_inference()


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_yes_or_no_predictions_need_no_threshold(dtype):
    stats = BinaryClassificationStats("pred", "label")
    batches = [(np.array([1, 1, 0], dtype), np.array([1, 0, 1], dtype)), (np.array([1], dtype), np.array([1], dtype))]
    third = pytest.approx(2 / 3)
    assert results(stats, *batches) == {"val_precision": third, "val_recall": third, "val_f1": third}
    nothing = np.zeros(2, dtype)
    assert results(stats, (nothing, nothing)) == {"val_precision": 0, "val_recall": 0, "val_f1": 0}


@pytest.mark.parametrize("labels", [[1, 0], [1, 0, 2], [1, 0, math.nan]])
def test_labels_that_do_not_fit_are_an_error(labels):
    with pytest.raises(tpk.InputError, match="must have a 0 or 1 for each of the 3 values of 'pred'"):
        results(BinaryClassificationStats("pred", "label"), (np.ones(3), np.array(labels)))


@pytest.mark.parametrize(("pred", "label"), [("weight", "y"), ("score", "cost")])
def test_a_tensor_that_is_no_vector_is_an_error(pred, label):
    with pytest.raises(tpk.ConfigError, match="takes vectors"):
        train(tpk.InferenceRunner(BATCHES, BinaryClassificationStats(pred, label)))


def test_a_mean_does_not_depend_on_the_order():
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(50, 1)) * 10.0 ** rng.integers(-8, 8, size=(50, 1))).astype(np.float32)
    stats = tpk.ScalarStats("a/cost:0", prefix="")
    batches = np.concatenate([values, rng.integers(1, 9, size=(50, 1))], 1)
    means = {results(stats, *rng.permutation(batches))["cost"] for _ in range(20)}
    assert means == {math.fsum(batches.prod(1)) / batches[:, 1].sum()}


def train_over(data, inputs, statistics, runner=tpk.InferenceRunner, **options):
    """Evaluate the mean of the last input over other data; return the history."""

    class Model(tpk.ModelDesc):
        def inputs(self):
            return inputs

        def build_graph(self, *inputs):
            tf.reduce_mean(inputs[-1], name="average")
            return tf.identity(tf.compat.v1.get_variable("w", initializer=0.0), "cost")

        def optimizer(self):
            return tf.compat.v1.train.GradientDescentOptimizer(0.0)

    return evaluate(Model(), data, statistics, runner, **options)


def evaluate(model, data, inferencers, runner=tpk.InferenceRunner, **options):
    """Evaluate a model once; return the history."""
    config = tpk.TrainConfig(
        model=model,
        data=tpk.FeedInput(data),
        callbacks=[runner(data, inferencers, **options)],
        extra_callbacks=[],
        monitors=[],
        steps_per_epoch=1,
        max_epoch=1,
    )
    return tpk.launch_train_with_config(config, "single").history


@pytest.mark.parametrize(
    ("runner", "options"),
    [(tpk.InferenceRunner, {}), (tpk.DataParallelInferenceRunner, {"devices": ["/cpu:0", "/cpu:1"]})],
)
def test_a_mean_weighs_examples_and_not_batches(runner, options):
    data = tpk.BatchData([[np.float32(x)] for x in (0, 0, 0, 1)], 3, remainder=True)
    inputs = [tf.TensorSpec([None], tf.float32, "x")]
    history = train_over(data, inputs, tpk.ScalarStats(["average", "cost"]), runner, **options)
    assert history["validation_average"] == [0.25]


@pytest.mark.parametrize("dtype", [tf.bool, tf.float32])
def test_inferencers_weigh_the_examples_of_a_small_last_batch(dtype):
    rng = np.random.default_rng(0)
    correct, label = rng.integers(0, 2, (2, 10))
    examples = [list(example) for example in zip(correct.astype(dtype.as_numpy_dtype), label, strict=True)]
    data = tpk.BatchData(examples, 4, remainder=True)
    assert [len(batch[0]) for batch in data] == [4, 4, 2]

    class Model(tpk.ModelDesc):
        def inputs(self):
            return [tf.TensorSpec([None], dtype, "correct"), tf.TensorSpec([None], tf.int64, "label")]

        def build_graph(self, correct, label):
            tf.logical_not(tf.cast(correct, tf.bool), name="incorrect_vector")
            tf.reduce_mean(tf.cast(correct, tf.float64), name="average")
            return tf.identity(tf.compat.v1.get_variable("w", initializer=0.0), "cost")

        def optimizer(self):
            return tf.compat.v1.train.GradientDescentOptimizer(0.0)

    inferencers = [
        tpk.Accuracy(),
        tpk.ClassificationError(),
        tpk.ScalarStats("average"),
        BinaryClassificationStats("correct", "label"),
        tpk.MetricInferencer(tf.compat.v1.metrics.mean, {"values": "correct"}, name="metric_mean"),
    ]
    history = evaluate(Model(), data, inferencers)
    assert history["validation_accuracy"] == [correct.mean()]
    assert history["validation_error"] == [1 - correct.mean()]
    assert history["validation_average"] == [pytest.approx(correct.mean(), abs=1e-15)]
    assert history["val_precision"] == [precision_score(label, correct)]
    assert history["val_recall"] == [recall_score(label, correct)]
    assert history["metric_mean"] == [pytest.approx(correct.mean(), abs=1e-7)]


def test_the_size_of_a_batch_is_that_of_the_first_input_that_has_one():
    data = [[np.float32(7), np.zeros(3, np.float32)], [np.float32(7), np.ones(1, np.float32)]]
    known = [tf.TensorSpec([], tf.float32, "rate"), tf.TensorSpec([None], tf.float32, "x")]
    assert train_over(data, known, tpk.ScalarStats("average"))["validation_average"] == [0.25]
    of_unknown_rank = [tf.TensorSpec(None, tf.float32, "rate"), *known[1:]]
    assert train_over(data, of_unknown_rank, tpk.ScalarStats("average"))["validation_average"] == [0.5]
    scalars = [[np.float32(3)], [np.float32(5)]]
    assert train_over(scalars, known[:1], tpk.ScalarStats("average"))["validation_average"] == [4.0]


@pytest.mark.parametrize(
    ("values", "mean"), [([np.inf, 1], np.inf), ([np.inf, -np.inf], np.nan), ([1, np.nan], np.nan)]
)
def test_means_of_what_is_not_finite(values, mean):
    (found,) = results(tpk.ScalarStats("cost"), *([value, 4] for value in values)).values()
    np.testing.assert_equal(found, mean)


@pytest.mark.parametrize(
    "merged",
    [tpk.ScalarStats("cost"), tpk.Accuracy(), tpk.ClassificationError(), BinaryClassificationStats("score", "y")],
)
def test_states_without_any_batch_merge(merged):
    merged.before_inference()
    nothing = merged.state()
    merged.merge([nothing, nothing])
    assert set(merged.after_inference()) == set(merged.statistics)


def test_a_mask_of_half_precision_is_counted_exactly():
    class Model(tpk.ModelDesc):
        def inputs(self):
            return [tf.TensorSpec([None], tf.float16, "wrong")]

        def build_graph(self, wrong):
            return tf.reduce_mean(tf.compat.v1.get_variable("w", initializer=0.0))

        def optimizer(self):
            return tf.compat.v1.train.GradientDescentOptimizer(0.0)

    # 4096 ones do not add up in float16.
    error = tpk.ClassificationError("wrong")
    assert results(error, np.ones(4097, np.float16), np.zeros(4095, np.float16)) == {"validation_error": 4097 / 8192}
