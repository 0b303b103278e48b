from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tpk_estimator
from tpk_estimator import (
    BaselineClassifier,
    BaselineRegressor,
    DNNClassifier,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedRegressor,
    DNNRegressor,
    LinearClassifier,
    LinearRegressor,
)
from tpk_estimator.canned import dnn_logit_fn_builder

v1 = tf.compat.v1
fc = v1.feature_column

X = {
    "size": np.linspace(-1, 1, 12, dtype=np.float32),
    "job": np.array(["a", "b", "c", "a"] * 3, object),
    "weight": np.ones(12, np.float32),
}
CLASSES = (X["size"] > 0).astype(np.int32)
NUMBERS = 2 * X["size"] + 1
SIZE = fc.numeric_column("size")
JOB = fc.categorical_column_with_hash_bucket("job", 5)
DEEP = [SIZE, fc.embedding_column(JOB, 2)]
WIDE = [fc.bucketized_column(SIZE, [-0.5, 0.0, 0.5]), JOB]
CONFIG = tpk_estimator.RunConfig(tf_random_seed=1)


def input_fn(labels, epochs=None):
    return tpk_estimator.inputs.numpy_input_fn(X, labels, batch_size=6, num_epochs=epochs, shuffle=False)


def test_a_deep_classifier(tmp_path):
    estimator = DNNClassifier([8, 4], DEEP, str(tmp_path), config=CONFIG, optimizer=lambda: v1.train.AdamOptimizer(0.1))
    estimator.train(input_fn(CLASSES), steps=40)
    assert estimator.evaluate(input_fn(CLASSES, 1))["accuracy"] == 1
    predicted = [each["class_ids"][0] for each in estimator.predict(input_fn(None, 1))]
    assert predicted == CLASSES.tolist()
    assert estimator.get_variable_value(
        "dnn/input_from_feature_columns/input_layer/job_embedding/embedding_weights"
    ).shape == (5, 2)
    assert estimator.get_variable_value("dnn/hiddenlayer_0/kernel").shape == (3, 8)
    assert estimator.get_variable_value("dnn/logits/bias").shape == (1,)


def test_hooks_read_the_losses_of_a_step_by_their_names_in_tensorflow_1(tmp_path):
    class LossHook(v1.train.SessionRunHook):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs(["linear/head/weighted_loss/Sum:0", "linear/head/truediv:0"])

        def after_run(self, run_context, run_values):
            losses.append(run_values.results)

    losses = []
    examples = {**X, "weight": np.full(12, 2, np.float32)}
    estimator = LinearClassifier([SIZE], str(tmp_path), weight_column="weight", config=CONFIG)
    batches = tpk_estimator.inputs.numpy_input_fn(examples, CLASSES, batch_size=6, shuffle=False)
    estimator.train(batches, hooks=[LossHook()], steps=2)
    np.testing.assert_allclose(losses[0], [12 * np.log(2), np.log(2)], rtol=1e-6)
    assert len(losses) == 2


def test_dropout_is_for_training_and_moving_averages_for_evaluation(tmp_path):
    estimator = DNNRegressor([8], [SIZE], str(tmp_path), config=CONFIG, dropout=0.5, batch_norm=True)
    estimator.train(input_fn(NUMBERS), steps=10)
    assert estimator.get_variable_value("dnn/hiddenlayer_0/batchnorm_0/moving_mean").any()
    assert estimator.evaluate(input_fn(NUMBERS, 1)) == estimator.evaluate(input_fn(NUMBERS, 1))


def test_a_linear_regressor_learns_a_line(tmp_path):
    estimator = LinearRegressor([SIZE], str(tmp_path), optimizer=v1.train.GradientDescentOptimizer(0.05))
    estimator.train(input_fn(NUMBERS), steps=200)
    assert estimator.get_variable_value("linear/linear_model/size/weights") == pytest.approx(2, abs=1e-3)
    assert estimator.get_variable_value("linear/linear_model/bias_weights") == pytest.approx(1, abs=1e-3)


def test_a_step_of_a_linear_classifier_by_hand(tmp_path):
    """The loss is the sum over the batch: from zero, the gradient of the bias is the sum of 0.5 - label."""
    estimator = LinearClassifier([SIZE], str(tmp_path), weight_column="weight", optimizer="SGD")
    estimator.train(input_fn(CLASSES), steps=1)
    gradient = np.sum(0.5 - CLASSES[:6])
    assert estimator.get_variable_value("linear/linear_model/bias_weights")[0] == pytest.approx(-0.2 * gradient)


def test_a_combined_model_counts_each_step_once(tmp_path):
    estimator = DNNLinearCombinedClassifier(
        str(tmp_path), n_classes=3, linear_feature_columns=WIDE, dnn_feature_columns=DEEP, dnn_hidden_units=[4]
    )
    estimator.train(input_fn(CLASSES), steps=3)
    assert estimator.get_variable_value("global_step") == 3
    assert {
        "dnn/hiddenlayer_0/kernel",
        "dnn/hiddenlayer_0/kernel/Adagrad",
        "linear/linear_model/job/weights",
        "linear/linear_model/job/weights/Ftrl",
        "linear/linear_model/size_bucketized/weights",
    } <= set(estimator.get_variable_names())
    assert np.shape(estimator.get_variable_value("linear/linear_model/bias_weights")) == (3,)


def test_a_combined_model_with_one_part(tmp_path):
    estimator = DNNLinearCombinedRegressor(str(tmp_path), dnn_feature_columns=[SIZE], dnn_hidden_units=[2])
    estimator.train(input_fn(NUMBERS), steps=1)
    assert not any(name.startswith("linear") for name in estimator.get_variable_names())


def test_baselines_learn_the_labels_alone(tmp_path):
    classifier = BaselineClassifier(str(tmp_path / "classes"))
    labels = np.array([1, 0, 0, 0] * 3)
    classifier.train(input_fn(labels), steps=300)
    (first, *_) = classifier.predict(input_fn(None, 1))
    assert first["probabilities"] == pytest.approx([0.75, 0.25], abs=0.1)
    regressor = BaselineRegressor(str(tmp_path / "numbers"))
    regressor.train(input_fn(NUMBERS), steps=300)
    assert regressor.evaluate(input_fn(NUMBERS, 1))["prediction/mean"] == pytest.approx(1, abs=0.1)


def test_summaries_of_layers():
    with tf.Graph().as_default() as graph, v1.variable_scope("dnn"):
        features = {"size": tf.constant([[1.0]])}
        dnn_logit_fn_builder(1, [2], [SIZE])(features, tpk_estimator.ModeKeys.EVAL)
        names = [each.op.name for each in graph.get_collection(v1.GraphKeys.SUMMARIES)]
    assert names == [
        f"dnn/dnn/{layer}/{what}"
        for layer in ("hiddenlayer_0", "logits")
        for what in ("fraction_of_zero_values", "activation")
    ]


def test_shared_embeddings(tmp_path):
    other = fc.categorical_column_with_hash_bucket("other", 5)
    with tf.Graph().as_default():
        columns = fc.shared_embedding_columns([JOB, other], 2)
    estimator = DNNClassifier([2], columns, str(tmp_path))
    data = tpk_estimator.inputs.numpy_input_fn({"job": X["job"], "other": X["job"]}, CLASSES, 6, None, False)
    estimator.train(data, steps=1)
    (name,) = [name for name in estimator.get_variable_names() if name.endswith("embedding_weights")]
    assert estimator.get_variable_value(name).shape == (5, 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DNNLinearCombinedClassifier(), "there are no columns"),
        (lambda: DNNLinearCombinedClassifier(dnn_feature_columns=[SIZE]), "belong together"),
        (lambda: DNNClassifier([2], [SIZE], n_classes=1), "n_classes' must be > 2"),
        (
            lambda: LinearClassifier([SIZE], optimizer="Sgd").train(input_fn(CLASSES), steps=1),
            "no optimizer called 'Sgd'",
        ),
        (lambda: LinearClassifier([SIZE], optimizer=3).train(input_fn(CLASSES), steps=1), "but got 3"),
    ],
)
def test_wrong_options(make, words):
    with pytest.raises(ValueError, match=words):
        make()
