"""The numbers are those that Estimator 2.15 gives for the same logits and labels."""

from __future__ import annotations

import pytest
import tensorflow as tf
import tpk_estimator
from tpk_estimator import (
    BinaryClassHead,
    LogisticRegressionHead,
    ModeKeys,
    MultiClassHead,
    MultiLabelHead,
    PoissonRegressionHead,
    RegressionHead,
)

v1 = tf.compat.v1

THREE = [[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]]
ONE = [[1.0], [-0.5]]
TWO = [[1.0, 2.0], [3.0, 4.0]]
WEIGHTS = {"w": [[1.0], [3.0]]}


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        v1.train.create_global_step()
        yield graph


def spec_of(head, mode, logits, labels, features=WEIGHTS, **options):
    features = {name: tf.constant(value) for name, value in features.items()}
    labels = labels if labels is None or isinstance(labels, tf.SparseTensor) else tf.constant(labels)
    return head.create_estimator_spec(features, mode, tf.constant(logits), labels, **options)


def evaluated(head, logits, labels, **options):
    """Return the metrics after one batch, and the loss."""
    spec = spec_of(head, ModeKeys.EVAL, logits, labels, **options)
    with session() as sess:
        sess.run([update for _, update in spec.eval_metric_ops.values()])
        values = sess.run({name: value for name, (value, _) in spec.eval_metric_ops.items()})
        return {**values, "loss": sess.run(spec.loss)}


def session():
    sess = v1.Session()
    sess.run([v1.global_variables_initializer(), v1.local_variables_initializer(), v1.tables_initializer()])
    return sess


CASES = {
    "classes": (
        MultiClassHead(3),
        THREE,
        [[2], [0]],
        {"loss": 0.9076059, "average_loss": 0.9076059, "accuracy": 0.5},
    ),
    "classes by name, weighted": (
        MultiClassHead(3, "w", ["a", "b", "c"], name="h"),
        THREE,
        [["a"], ["c"]],
        {"loss": 4.815212, "average_loss/h": 2.407606, "accuracy/h": 0.0},
    ),
    "the sum of the losses": (
        MultiClassHead(3, loss_reduction="sum"),
        THREE,
        [1, 2],
        {"loss": 3.8152118, "average_loss": 1.9076059, "accuracy": 0.0},
    ),
    "two classes": (
        BinaryClassHead(thresholds=[0.3]),
        ONE,
        [[1], [1]],
        {
            "loss": 0.64366937,
            "average_loss": 0.64366937,
            "accuracy": 0.5,
            "precision": 1.0,
            "recall": 0.5,
            "prediction/mean": 0.55429965,
            "label/mean": 1.0,
            "accuracy_baseline": 1.0,
            "auc": 0.0,
            "auc_precision_recall": 1.0,
            "accuracy/positive_threshold_0.3": 1.0,
            "precision/positive_threshold_0.3": 1.0,
            "recall/positive_threshold_0.3": 1.0,
        },
    ),
    "numbers": (
        RegressionHead(2, "w"),
        TWO,
        [[1.0, 1.0], [2.0, 2.0]],
        {"loss": 4.0, "average_loss": 2.0, "prediction/mean": 3.0, "label/mean": 1.75},
    ),
    "a loss function of one's own": (
        RegressionHead(2, "w", loss_fn=lambda labels, logits: tf.reduce_sum(tf.abs(labels - logits), 1)),
        TWO,
        [[1.0, 1.0], [2.0, 2.0]],
        {"loss": 5.0, "average_loss": 2.5, "prediction/mean": 3.0, "label/mean": 1.75},
    ),
    "counts": (
        PoissonRegressionHead(),
        [[1.0], [3.0]],
        [[1.0], [2.0]],
        {"loss": 8.227813, "average_loss": 8.227813, "prediction/mean": 11.401909, "label/mean": 1.5},
    ),
    "probabilities": (
        LogisticRegressionHead(),
        [[1.0], [3.0]],
        [[1.0], [0.2]],
        {"loss": 1.3809246, "average_loss": 1.3809246, "prediction/mean": 0.84181637, "label/mean": 0.6},
    ),
    "several labels": (
        MultiLabelHead(3, "w", [0.5], ["a", "b", "c"], classes_for_class_based_metrics=["a"]),
        THREE,
        [[1, 0, 1], [0, 0, 1]],
        {
            "loss": 2.0746315,
            "average_loss": 1.0373157,
            "auc": 0.32857144,
            "auc_precision_recall": 0.4747104,
            "accuracy/positive_threshold_0.5": 5 / 12,
            "precision/positive_threshold_0.5": 1 / 3,
            "recall/positive_threshold_0.5": 0.4,
            "probability_mean/a": 0.55776465,
            "auc/a": 1.0,
            "auc_precision_recall/a": 1.0,
        },
    ),
}


@pytest.mark.parametrize(("head", "logits", "labels", "expected"), CASES.values(), ids=CASES)
def test_loss_and_metrics(head, logits, labels, expected):
    assert evaluated(head, logits, labels) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(
    ("head", "words"), [(MultiLabelHead(3), [0, 2, 1]), (MultiLabelHead(3, label_vocabulary=list("abc")), list("acb"))]
)
def test_sparse_labels(head, words):
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], words, [2, 2])
    found = evaluated(head, THREE, labels)
    assert found["average_loss"] == pytest.approx(0.6347413)
    assert found["auc_precision_recall"] == pytest.approx(0.76895094)


def test_the_heads_of_tensorflow_1_integrate_by_the_trapezoidal_rule():
    head = tpk_estimator.contrib.multi_label_head(3)
    assert evaluated(head, THREE, [[1, 0, 1], [0, 0, 1]])["auc_precision_recall"] == pytest.approx(0.64999986)


def test_regularization_losses_are_added():
    losses = [tf.constant(1.5), tf.constant(0.5)]
    found = evaluated(RegressionHead(2, "w"), TWO, [[1.0, 1.0], [2.0, 2.0]], regularization_losses=losses)
    assert found["loss"] == 6
    assert found["average_loss"] == 2
    assert found["regularization_loss"] == 2


def test_predictions_and_export_outputs():
    head = BinaryClassHead(label_vocabulary=["no", "yes"])
    spec = spec_of(head, ModeKeys.PREDICT, ONE, None)
    with session() as sess:
        found = sess.run(spec.predictions)
        exported = sess.run(spec.export_outputs["serving_default"].classes)
    assert found["classes"].tolist() == [[b"yes"], [b"no"]]
    assert found["class_ids"].tolist() == [[1], [0]]
    assert found["logistic"].ravel() == pytest.approx([0.7310586, 0.37754068])
    assert found["probabilities"].sum(1) == pytest.approx([1, 1])
    assert found["all_class_ids"].tolist() == [[0, 1], [0, 1]]
    assert exported.tolist() == found["all_classes"].tolist() == [[b"no", b"yes"]] * 2
    assert sorted(spec.export_outputs) == ["classification", "predict", "regression", "serving_default"]


@pytest.mark.parametrize("give", ["optimizer", "train_op_fn"])
def test_a_training_step(graph, give):
    w = v1.get_variable("w", [], initializer=v1.ones_initializer())
    optimizer = v1.train.GradientDescentOptimizer(0.5)
    step = v1.train.get_global_step()
    options = {
        "optimizer": optimizer,
        "train_op_fn": lambda loss: optimizer.minimize(loss, step),
    }
    spec = RegressionHead().create_estimator_spec(
        {}, ModeKeys.TRAIN, tf.reshape(w, [1, 1]), tf.constant([[3.0]]), **{give: options[give]}
    )
    with session() as sess:
        sess.run(spec.train_op)
        assert sess.run([w, step]) == [3.0, 1]
    assert [each.op.name for each in graph.get_collection(v1.GraphKeys.SUMMARIES)] == ["loss"]


@pytest.mark.parametrize(
    ("head", "scope"), [(RegressionHead(), "training"), (tpk_estimator.contrib.regression_head(), "head")]
)
def test_variables_of_an_optimizer_have_the_scope_of_tensorflow(graph, head, scope):
    w = v1.get_variable("w", [], initializer=v1.ones_initializer())
    logits, labels = tf.reshape(w, [1, 1]), tf.constant([[3.0]])
    head.create_estimator_spec({}, ModeKeys.TRAIN, logits, labels, optimizer=v1.train.AdamOptimizer())
    names = {each.op.name for each in v1.global_variables()}
    assert names == {"global_step", "w", "w/Adam", "w/Adam_1", f"{scope}/beta1_power", f"{scope}/beta2_power"}


def test_update_ops_run_with_a_step():
    counted = v1.get_variable("counted", [], initializer=v1.zeros_initializer())
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign_add(counted, 1))
    spec = spec_of(RegressionHead(), ModeKeys.TRAIN, ONE, ONE, train_op_fn=lambda loss: tf.no_op())
    with session() as sess:
        sess.run(spec.train_op)
        assert sess.run(counted) == 1


@pytest.mark.parametrize(
    ("head", "logits", "labels", "words"),
    [
        (MultiClassHead(3), ONE, [1, 2], r"last dimension 3, but .* \(2, 1\)"),
        (MultiClassHead(3), THREE, [[1, 2], [0, 1]], r"must have the shape \(2, 1\)"),
        (MultiClassHead(3), THREE, [0.5, 1.0], "must be integers, but they are float32"),
        (MultiClassHead(3), THREE, ["a", "b"], "give a label_vocabulary for strings"),
        (MultiClassHead(3, label_vocabulary=list("abc")), THREE, [0, 1], "strings of label_vocabulary"),
        (MultiLabelHead(3), THREE, [list("abc")] * 2, "must be a SparseTensor"),
        (MultiClassHead(3, "weights"), THREE, [0, 1], r"'weights' are not in the features"),
        (MultiClassHead(3), THREE, None, "the labels are None"),
    ],
)
def test_wrong_tensors(head, logits, labels, words):
    with pytest.raises(ValueError, match=words):
        spec_of(head, ModeKeys.EVAL, logits, labels)


def test_labels_by_name_are_not_one_tensor():
    with pytest.raises(ValueError, match=r"a dict with the names \['a'\]"):
        MultiClassHead(3).loss({"a": tf.constant([1])}, tf.constant(THREE))


@pytest.mark.parametrize(
    ("head", "labels", "words"),
    [
        (MultiClassHead(3), [3, 0], "labels must be between 0 and 2"),
        (BinaryClassHead(), [[1.5], [0]], "labels must be between 0 and 1"),
        (MultiClassHead(3, label_vocabulary=list("abc")), ["a", "z"], r"labels must be in label_vocabulary.*z"),
    ],
)
def test_labels_out_of_range_end_a_step(head, labels, words):
    spec = spec_of(head, ModeKeys.EVAL, ONE if isinstance(head, BinaryClassHead) else THREE, labels)
    with session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match=words):
        sess.run(spec.loss)


@pytest.mark.parametrize("options", [{}, {"optimizer": 1, "train_op_fn": 1}])
def test_training_needs_one_way_to_train(options):
    with pytest.raises(ValueError, match="either an optimizer or a train_op_fn"):
        spec_of(RegressionHead(), ModeKeys.TRAIN, ONE, ONE, **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MultiClassHead(2), "n_classes' must be > 2"),
        (lambda: MultiClassHead(3, label_vocabulary="abc"), "must be a list of strings"),
        (lambda: MultiClassHead(3, label_vocabulary=["a"]), "each of the 3 classes, but has 1"),
        (lambda: MultiClassHead(3, loss_reduction="none"), "loss_reduction must be one of sum,"),
        (lambda: BinaryClassHead(thresholds=[1.5]), "between 0 and 1, but one is 1.5"),
        (lambda: RegressionHead(0), "label_dimension' must be >= 1"),
        (lambda: RegressionHead(loss_fn=lambda logits: logits), "but labels is missing"),
        (lambda: MultiLabelHead(3, classes_for_class_based_metrics=[3]), r"has 3, which is not one of \[0, 1, 2\]"),
    ],
)
def test_wrong_options(make, words):
    with pytest.raises(ValueError, match=words):
        make()
