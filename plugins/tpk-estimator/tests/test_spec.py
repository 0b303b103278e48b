from __future__ import annotations

import pytest
import tensorflow as tf
from tpk_estimator import EstimatorSpec, ModeKeys

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize(
    ("mode", "fields", "missing"),
    [
        (ModeKeys.TRAIN, {"loss": 1.0}, "train_op"),
        (ModeKeys.TRAIN, {"train_op": 1.0}, "loss"),
        (ModeKeys.EVAL, {}, "loss"),
        (ModeKeys.PREDICT, {"loss": 1.0}, "predictions"),
    ],
)
def test_each_mode_needs_its_fields(mode, fields, missing):
    tensors = {name: tf.constant(value) for name, value in fields.items()}
    with pytest.raises(ValueError, match=f"has no {missing}"):
        EstimatorSpec(mode, **tensors)


def test_fields_have_defaults():
    spec = EstimatorSpec(ModeKeys.PREDICT, predictions=tf.constant(1.0))
    assert (spec.training_hooks, spec.eval_metric_ops) == ((), {})
    assert isinstance(spec.scaffold, v1.train.Scaffold)


@pytest.mark.parametrize("shape", [[], [1], [1, 1]])
def test_a_loss_with_one_element_becomes_a_scalar(shape):
    assert EstimatorSpec(ModeKeys.EVAL, loss=tf.zeros(shape)).loss.shape == []


def test_a_loss_per_example_is_an_error():
    with pytest.raises(ValueError, match=r"loss must be a scalar, but 'losses:0' has the shape \(4,\)"):
        EstimatorSpec(ModeKeys.EVAL, loss=tf.zeros([4], name="losses"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loss": 1.0}, "loss of the EstimatorSpec must be a tensor"),
        ({"predictions": {"class": 1}}, r"predictions\['class'\]"),
        ({"train_op": 3}, "train_op must be an operation"),
        ({"eval_metric_ops": {"accuracy": 0.5}}, r"eval_metric_ops\['accuracy'\] must be a pair"),
        ({"eval_metric_ops": [1]}, "must be a dict of metrics"),
        ({"training_hooks": [object()]}, "training_hooks of the EstimatorSpec must contain SessionRunHooks"),
        ({"scaffold": object()}, r"must be a tf\.compat\.v1\.train\.Scaffold"),
    ],
)
def test_a_wrong_type_is_named(fields, message):
    with pytest.raises(TypeError, match=message):
        EstimatorSpec(ModeKeys.EVAL, **{"loss": tf.constant(1.0), **fields})


def test_a_tensor_of_another_graph_is_an_error():
    with tf.Graph().as_default():
        elsewhere = tf.constant(1.0, name="elsewhere")
    with pytest.raises(ValueError, match="'elsewhere:0', is in another graph"):
        EstimatorSpec(ModeKeys.EVAL, loss=elsewhere)


def test_a_metric_of_keras_2_becomes_a_pair():
    keras = pytest.importorskip("tf_keras")
    metric = keras.metrics.Mean()
    metric.update_state(tf.constant([1.0, 2.0]))
    spec = EstimatorSpec(ModeKeys.EVAL, loss=tf.constant(0.0), eval_metric_ops={"mean": metric})
    value, update = spec.eval_metric_ops["mean"]
    with v1.Session() as sess:
        sess.run(v1.local_variables_initializer())
        sess.run(update)
        assert sess.run(value) == 1.5
    with pytest.raises(ValueError, match=r"\['unused'\] is never updated"):
        EstimatorSpec(ModeKeys.EVAL, loss=tf.constant(0.0), eval_metric_ops={"unused": keras.metrics.Mean()})


def test_replace_checks_the_new_values():
    spec = EstimatorSpec(ModeKeys.EVAL, loss=tf.constant(1.0))
    assert spec._replace(predictions={"a": tf.constant(2)}).predictions["a"].dtype == tf.int32
    with pytest.raises(ValueError, match="mode of an EstimatorSpec cannot be changed"):
        spec._replace(mode=ModeKeys.TRAIN)
    with pytest.raises(TypeError, match="loss"):
        spec._replace(loss=1.0)
