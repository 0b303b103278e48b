"""A predictor as a function: what it takes, what it gives, and the session beneath it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.dataflow import aligned_empty
from tpk.errors import InputError, SessionError
from tpk.predict import OfflinePredictor, OnlinePredictor, PredictConfig


@pytest.fixture
def predict(config_of):
    with OfflinePredictor(config_of()) as predict:
        yield predict


@pytest.mark.parametrize(
    "x",
    [
        np.ones([2, 3], np.float32),
        np.ones([2, 3], np.float64),
        np.ones([2, 3], np.int64),
        np.ones([3, 2], np.float32).T,
        np.ones([4, 3], np.float32)[::2],
        [[1, 2, 3]],
        ((1.5, 2.5, 3.5),),
        np.zeros([0, 3], np.float32),
    ],
    ids=["as it is", "float64", "int64", "transposed", "strided", "integers", "tuples", "empty"],
)
def test_the_outputs_are_those_of_session_run(predict, x):
    (found,) = predict(x)
    wanted = predict.sess.run(predict.outputs[0], {predict.inputs[0]: x})
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(predict({"x": x})[0], wanted)
    np.testing.assert_array_equal(predict({"x:0": x})[0], wanted)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"takes 1 inputs \(x\), got 0"),
        ([1, 2], r"takes 1 inputs \(x\), got 2"),
        ([np.ones(3)], r"'x'.*expected float32 of shape \((None|\?), 3\), got ndarray.*\(3,\)\. .*array\[np.newaxis\]"),
        (
            [np.ones([2, 4])],
            r"'x'.*of shape \((None|\?), 3\), got ndarray of dtype float64 and shape \(2, 4\)",
        ),
        ([np.ones([2, 3], complex)], "'x'.*expected float32.*got ndarray of dtype complex128"),
        ([[["a", "b", "c"]]], "'x'.*got list"),
        ([None], "'x'.*got NoneType"),
        ([{"X": 1}], r"missing keys \['x'\] and unexpected keys \['X'\]"),
        ([{}], r"missing keys \['x'\] and unexpected keys \[\]"),
        ([{"x": np.ones([1, 3]), "label": 1}], r"missing keys \[\] and unexpected keys \['label'\]"),
    ],
)
def test_an_input_that_does_not_fit_is_named(predict, arguments, message):
    with pytest.raises(InputError, match=message):
        predict(*arguments)


def test_a_mapping_of_outputs_gives_a_dict(config_of, by_numpy, batches):
    with OfflinePredictor(config_of(output_names={"logits": "prediction:0", "sum": "total"})) as predict:
        results = predict(batches[0])
    assert list(results) == ["logits", "sum"]
    np.testing.assert_allclose(results["logits"], by_numpy(batches[0]), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(results["sum"], results["logits"].sum(1), rtol=1e-5)


def test_outputs_may_repeat_and_may_be_inputs(config_of, batches):
    names = ["x", "total", "prediction", "total"]
    with OfflinePredictor(config_of(output_names=names)) as predict:
        x, total, prediction, again = predict(batches[0])
    np.testing.assert_array_equal(x, batches[0])
    np.testing.assert_array_equal(total, again)
    np.testing.assert_allclose(prediction.sum(1), total, rtol=1e-5)
    with OfflinePredictor(config_of(output_names=["x"])) as predict:
        np.testing.assert_array_equal(predict(batches[0])[0], batches[0])


def test_results_are_not_the_memory_of_the_inputs():
    config = PredictConfig(
        tower_func=lambda x: tf.reshape(x, [-1], name="flat"),
        input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")],
        output_names=["flat", "x"],
    )
    x = aligned_empty((2, 4), np.float32)  # so that TensorFlow takes it as it is
    x[...] = 1
    with OfflinePredictor(config) as predict:
        flat, same = predict(x)
    x[...] = 2
    np.testing.assert_array_equal(flat, np.ones(8))
    np.testing.assert_array_equal(same, np.ones([2, 4]))


def test_text_inputs_and_outputs_work():
    config = PredictConfig(
        tower_func=lambda text: tf.strings.upper(text, name="upper"),
        input_signature=[tf.TensorSpec([None], tf.string, "text")],
        output_names=["upper"],
    )
    with OfflinePredictor(config) as predict:
        assert predict(["a", b"b"])[0].tolist() == [b"A", b"B"]
        with pytest.raises(InputError, match=r"'text'.*expected string"):
            predict([1, 2])


def test_a_model_without_inputs_is_called_without_any():
    config = PredictConfig(
        tower_func=lambda x: tf.constant(3.0, name="three"),
        input_signature=[tf.TensorSpec([], tf.float32, "x")],
        output_names=["three"],
    )
    with OfflinePredictor(config) as predict:
        assert predict() == [3]


def test_results_come_from_the_weights_of_the_moment(predict):
    before = predict([[1, 1, 1]])[0]
    tpk.DictRestore({"fc/W": np.zeros([3, 2]), "fc/b": [7, 8]}).run(predict.sess)
    np.testing.assert_array_equal(predict([[1, 1, 1]])[0], [[7, 8]])
    assert not np.array_equal(before, [[7, 8]])


def test_many_threads_may_call_it_at_once(config_of, by_numpy):
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal([size % 5 + 1, 3], dtype=np.float32) for size in range(200)]
    # Not called before: the threads meet where it is compiled, too.
    with OfflinePredictor(config_of()) as predict, ThreadPoolExecutor(8) as threads:
        for x, (found,) in zip(inputs, threads.map(predict, inputs), strict=True):
            np.testing.assert_allclose(found, by_numpy(x), rtol=1e-5, atol=1e-5)


def test_nothing_is_added_to_the_graph_by_a_call(predict, batches):
    assert predict.graph.finalized
    for x in batches:
        predict(x)


def test_a_failing_op_raises_the_same_error_as_session_run():
    def checked(x):
        with tf.control_dependencies([tf.compat.v1.assert_positive(x, message="only positive ones")]):
            return tf.identity(x, name="same")

    signature = [tf.TensorSpec([None], tf.float32, "x")]
    config = PredictConfig(tower_func=checked, input_signature=signature, output_names=["same"])
    with OfflinePredictor(config) as predict:
        with pytest.raises(tf.errors.InvalidArgumentError, match="only positive ones"):
            predict([-1.0])
        assert predict([1.0])[0] == [1]


def test_a_closed_session_is_an_error(config_of):
    predict = OfflinePredictor(config_of())
    predict([[1, 2, 3]])
    predict.close()
    predict.close()
    with pytest.raises(SessionError, match="the session of <OfflinePredictor of prediction from x> has been closed"):
        predict([[1, 2, 3]])


def test_it_follows_a_new_session(config_of):
    built = config_of().build_graph()
    sessions = [built.create_session()]
    predict = OnlinePredictor(built.inputs, list(built.outputs.values()), lambda: sessions[-1])
    first = predict([[1, 2, 3]])[0]
    sessions[0].close()
    sessions.append(built.create_session())
    np.testing.assert_array_equal(predict([[1, 2, 3]])[0], first)
    sessions[1].close()


def test_tensors_that_cannot_be_fed_are_an_error():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        doubled = x * 2
        graph.prevent_feeding(doubled)
        with pytest.raises(InputError, match="cannot be fed"):
            OnlinePredictor([doubled], [doubled + 1], lambda: None)
        with pytest.raises(InputError, match="takes tensors of a graph, but 'x' is 'x'"):
            OnlinePredictor(["x"], [doubled], lambda: None)
        with pytest.raises(InputError, match=r"depend on 'x'.*none"):
            OnlinePredictor([], [doubled], lambda: None)
        with pytest.raises(InputError, match="no session yet"):
            OnlinePredictor([x], [doubled], lambda: None)([1.0])
