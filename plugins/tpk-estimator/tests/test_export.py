from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tpk_estimator import export
from tpk_estimator.export import (
    ClassificationOutput,
    PredictOutput,
    RegressionOutput,
    ServingInputReceiver,
    TensorServingInputReceiver,
    signatures,
)

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def examples():
    return v1.placeholder(tf.string, [None], "examples")


@pytest.fixture
def pixels():
    return v1.placeholder(tf.float32, [None, 2], "pixels")


@pytest.fixture
def scores():
    return tf.constant([[0.1, 0.9]], name="scores")


@pytest.fixture
def classes():
    return tf.constant([["a", "b"]], name="classes")


def described(signature):
    method = signature.method_name.removeprefix("tensorflow/serving/")
    names = [{key: info.name for key, info in side.items()} for side in (signature.inputs, signature.outputs)]
    return (method, *names)


def test_predictions_are_the_default_signature(examples, scores):
    made = signatures(None, {"p": scores}, ServingInputReceiver(scores, examples))
    assert {name: described(signature) for name, signature in made.items()} == {
        "serving_default": ("predict", {"input": "examples:0"}, {"p": "scores:0"})
    }


def test_one_output_is_also_the_default(pixels, scores):
    made = signatures({"p": PredictOutput(scores)}, {}, ServingInputReceiver(scores, {"x": pixels}))
    expected = ("predict", {"x": "pixels:0"}, {"output": "scores:0"})
    assert {name: described(signature) for name, signature in made.items()} == {
        "p": expected,
        "serving_default": expected,
    }


def test_classes_and_values_of_serialized_examples(examples, scores, classes):
    outputs = {
        "serving_default": ClassificationOutput(scores, classes),
        "scores": ClassificationOutput(scores=scores),
        "value": RegressionOutput(scores),
    }
    made = signatures(outputs, {}, ServingInputReceiver(scores, {"e": examples}))
    assert {name: described(signature) for name, signature in made.items()} == {
        "serving_default": ("classify", {"inputs": "examples:0"}, {"classes": "classes:0", "scores": "scores:0"}),
        "scores": ("classify", {"inputs": "examples:0"}, {"scores": "scores:0"}),
        "value": ("regress", {"inputs": "examples:0"}, {"outputs": "scores:0"}),
    }


def test_requests_of_another_kind_have_no_classification(pixels, scores, caplog):
    outputs = {"serving_default": ClassificationOutput(scores), "predict": PredictOutput({"p": scores})}
    assert list(signatures(outputs, {}, ServingInputReceiver(pixels, {"x": pixels}))) == ["predict"]
    assert "'serving_default' is left out: it takes one tensor of serialized examples" in caplog.text


def test_alternative_requests_have_signatures_with_a_prefix(examples, pixels, scores):
    receiver = ServingInputReceiver(scores, {"e": examples}, {"raw": {"x": pixels}})
    made = signatures(None, {"p": scores}, receiver)
    assert described(made["raw:serving_default"]) == ("predict", {"x": "pixels:0"}, {"p": "scores:0"})
    assert sorted(made) == ["raw:serving_default", "serving_default"]


def test_several_outputs_need_a_default(examples, scores):
    outputs = {"a": PredictOutput(scores), "b": PredictOutput(scores)}
    with pytest.raises(ValueError, match=r"\['a', 'b'\]: call one 'serving_default'"):
        signatures(outputs, {}, ServingInputReceiver(scores, examples))


@pytest.mark.parametrize("wrap", [lambda output: output, lambda output: {"a": output.outputs["output"]}])
def test_outputs_are_a_dict_of_outputs(wrap, examples, scores):
    with pytest.raises(TypeError, match="must be a dict of PredictOutput"):
        signatures(wrap(PredictOutput(scores)), {}, ServingInputReceiver(scores, examples))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (ClassificationOutput, "needs scores, classes, or both"),
        (lambda: ClassificationOutput(scores=tf.constant("a")), "scores of ClassificationOutput .* float32"),
        (lambda: ClassificationOutput(classes=tf.constant(1.0)), "classes of ClassificationOutput .* string"),
        (lambda: RegressionOutput(3), "value of RegressionOutput must be a tensor, but is 3"),
        (lambda: PredictOutput({"a": 3}), r"outputs\['a'\] must be a tensor"),
        (lambda: PredictOutput({3: tf.constant(1)}), "must be strings, but got 3"),
        (lambda: ServingInputReceiver(None, tf.constant(1)), "features is None"),
        (lambda: ServingInputReceiver(tf.constant(1), {"a": 1}), r"receiver_tensors\['a'\] must be a tensor"),
        (lambda: ServingInputReceiver(tf.constant(1), tf.constant(1), [1]), "dict of receiver tensors"),
        (lambda: TensorServingInputReceiver({"a": tf.constant(1)}, tf.constant(1)), "features must be a tensor"),
    ],
)
def test_wrong_tensors(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_single_feature_gets_a_name(pixels, examples):
    assert ServingInputReceiver(pixels, examples).features == {"feature": pixels}
    assert TensorServingInputReceiver(pixels, examples).features is pixels


def test_serialized_examples_are_parsed():
    receiver = export.build_parsing_serving_input_receiver_fn({"a": tf.io.FixedLenFeature([1], tf.float32)}, 1)()
    example = tf.train.Example()
    example.features.feature["a"].float_list.value.append(0.5)
    with v1.Session() as sess:
        feed = {receiver.receiver_tensors["examples"]: [example.SerializeToString()]}
        assert sess.run(receiver.features["a"], feed) == [[0.5]]


def test_raw_features_keep_shapes_and_names():
    features = {
        "a": tf.constant([[1.0]], name="size"),
        "b": tf.TensorSpec([None, 3], tf.int32, "ids"),
        "c": np.zeros([2, 5]),
    }
    receiver = export.build_raw_serving_input_receiver_fn(features)()
    made = {key: (t.op.name, t.shape.as_list(), t.dtype) for key, t in receiver.features.items()}
    assert made == {
        "a": ("size_1", [None, 1], tf.float32),
        "b": ("ids", [None, 3], tf.int32),
        "c": ("c", [None, 5], tf.float64),
    }
    assert receiver.receiver_tensors == receiver.features


def test_raw_features_are_a_dict(pixels):
    with pytest.raises(ValueError, match="dict of tensors by name"):
        export.build_raw_serving_input_receiver_fn(pixels)
