"""Results belong to who gets them: they share memory with no variable, constant, feed, or other result."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hooked_sessions import Ask, assert_same, hooked

import tpk
from tpk.graph.fetches import ReusableFeeds
from tpk.plugin import Callback
from tpk.predict.online import OnlinePredictor

v1 = tf.compat.v1


def aligned(*shape):
    """An array of ones that TensorFlow takes without a copy."""
    size = int(np.prod(shape)) * 4
    buffer = np.empty(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    array = buffer[start : start + size].view(np.float32).reshape(shape)
    array[:] = 1
    return array


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        v1.get_variable("resource", initializer=np.ones([40, 2], np.float32), use_resource=True)
        v1.get_variable("reference", initializer=np.ones([40, 2], np.float32), use_resource=False)
        tf.constant(np.ones([40, 2], np.float32), name="constant")
        v1.placeholder(tf.float32, [None, 2], name="fed")
        fed = graph.get_tensor_by_name("fed:0")
        for name, tensor in {
            "same": tf.identity(fed),
            "reshaped": tf.reshape(fed, [-1]),
            "sliced": fed[:4],
            "expanded": fed[None],
            "unknown rank": tf.reshape(fed, v1.placeholder_with_default([-1], [None])),
        }.items():
            tf.identity(tensor, name.replace(" ", "_"))
        product = tf.multiply(fed, 2.0, name="product")
        kept = v1.get_variable("kept", initializer=np.zeros([40, 2], np.float32), use_resource=True)
        kept.assign(product, name="keep", read_value=False)
        yield graph


@pytest.fixture
def sess(graph):
    with v1.Session(graph=graph) as sess:
        sess.run(v1.global_variables_initializer())
        yield sess


STANDING = ["reference:0", "constant:0", "resource/Read/ReadVariableOp:0"]


@pytest.mark.parametrize("name", STANDING)
def test_changing_a_result_changes_nothing_in_the_session(sess, name):
    ours = hooked(sess)
    for _ in range(3):
        result = ours.run(name)
        assert result.flags.writeable
        result *= 0
        np.testing.assert_array_equal(sess.run(name), np.ones([40, 2], np.float32))


@pytest.mark.parametrize("name", ["resource", "reference"])
def test_a_history_of_results_keeps_the_values_of_its_time(sess, graph, name):
    with graph.as_default():
        variable = next(each for each in v1.global_variables() if each.op.name == name)
        add = v1.assign_add(variable, tf.ones_like(variable)).op
    ours = hooked(sess)
    history = []
    for _ in range(3):
        ours.run(add)
        history.append(ours.run(variable))
    assert [result[0, 0] for result in history] == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("name", ["same", "reshaped", "sliced", "expanded", "unknown_rank", "product"])
def test_a_fed_array_and_its_results_go_separate_ways(sess, name):
    array = aligned(40, 2)
    ours = hooked(sess)
    expected = sess.run(f"{name}:0", {"fed:0": array})
    for feed_dict in ({sess.graph.get_tensor_by_name("fed:0"): array}, {"fed:0": array}):
        result = ours.run(f"{name}:0", feed_dict)
        array[:] = 7
        assert_same(result, expected)
        result += 1000
        assert (array == 7).all()
        array[:] = 1


def test_reusable_feeds_may_be_filled_anew(sess):
    fed, array = sess.graph.get_tensor_by_name("fed:0"), aligned(40, 2)

    class Feeds(Callback):
        def __init__(self):
            self.request = v1.train.SessionRunArgs(None, ReusableFeeds([fed], self.take))

        def take(self):
            array[:] += 1
            return [array]

        def before_run(self, run_context):
            return self.request

    ours = hooked(sess, Feeds())
    same = sess.graph.get_tensor_by_name("same:0")
    results = [ours.run(same) for _ in range(4)]
    assert [result[0, 0] for result in results] == [2.0, 3.0, 4.0, 5.0]


def test_what_is_fed_and_fetched_is_not_the_array_that_was_fed(sess):
    fed, array = sess.graph.get_tensor_by_name("fed:0"), aligned(40, 2)
    result = hooked(sess).run([fed], {fed: array})[0]
    result += 1000
    assert (array == 1).all()


def test_a_computed_result_that_a_variable_keeps_is_not_the_variable(sess):
    fed = sess.graph.get_tensor_by_name("fed:0")
    result = hooked(sess).run(["product:0", "keep"], {fed: aligned(40, 2)})[0]
    result *= 0
    assert (sess.run("kept/Read/ReadVariableOp:0") == 2).all()


STRUCTURES = {
    "list": lambda v: [v, v],
    "dict": lambda v: {"a": v, "b": [v, {"c": (v,)}], 3: v},
    "by two names": lambda v: [v, "constant:0"],
    "sparse": lambda v: [tf.SparseTensor(tf.where(v > 0), v[:, 0], [80, 2])] * 2,
    "ragged": lambda v: [tf.RaggedTensor.from_tensor(v)] * 2,
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_no_two_results_of_a_run_share_memory(sess, graph, structure):
    with graph.as_default():
        fetches = STRUCTURES[structure](graph.get_tensor_by_name("constant:0"))
    asks = Ask(fetches)
    ours = hooked(sess, asks)
    expected = sess.run(fetches)
    for _ in range(2):
        result = ours.run(fetches)
        assert_same(result, expected)
        arrays = [each for part in (result, asks.got[-1]) for each in arrays_in(part)]
        for index, array in enumerate(arrays):
            assert not any(np.shares_memory(array, other) for other in arrays[:index])


def arrays_in(result):
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, tuple | list):
        return [array for part in result for array in arrays_in(part)]
    if isinstance(result, v1.ragged.RaggedTensorValue):
        return [*arrays_in(result.values), *arrays_in(result.row_splits)]
    return [result]


def test_a_callback_cannot_change_weights_or_what_others_get(tmp_path):
    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.weights = v1.get_variable("weights", initializer=np.ones([8, 8], np.float32))
                self.train_op = tf.no_op()

    class Scales(tpk.Callback):
        def before_run(self, run_context):
            return self.trainer.weights

        def after_run(self, run_context, run_values):
            run_values.results[:] *= 1000
            self.last = run_values.results

    class Looks(Scales):
        def after_run(self, run_context, run_values):
            assert (run_values.results == 1).all()

    class Weights(tpk.Callback):
        def after_train(self, trainer):
            self.weights = trainer.sess.run(trainer.weights)

    weights = Weights()
    T().train(callbacks=[Scales(), Looks(), weights], steps_per_epoch=3, max_epoch=1)
    assert (weights.weights == 1).all()


@pytest.mark.parametrize(
    "fetches", [["resource/Read/ReadVariableOp:0"], ["constant:0"], ["same:0"], ["fed:0"], ["same:0"] * 2]
)
def test_the_outputs_of_a_predictor_are_its_callers(sess, fetches):
    graph = sess.graph
    predict = OnlinePredictor(
        [graph.get_tensor_by_name("fed:0")], [graph.get_tensor_by_name(name) for name in fetches], lambda: sess
    )
    array = aligned(40, 2)
    for _ in range(2):
        results = predict(array)
        for number, result in enumerate(results):
            result[:] = number + 5
        assert [result[0, 0] for result in results] == [number + 5 for number in range(len(results))]
        assert (array == 1).all()
        assert (sess.run("resource/Read/ReadVariableOp:0") == 1).all()
        assert (sess.run("constant:0") == 1).all()


def test_scalars_operations_and_strings_are_handed_out_as_they_are(sess, graph):
    with graph.as_default():
        total, words = tf.reduce_sum(graph.get_tensor_by_name("constant:0")), tf.constant([b"a", b"b"])
    ours = hooked(sess)
    total_value, word_values, nothing = ours.run([total, words, total.op])
    assert (total_value, word_values.tolist(), nothing) == (80.0, [b"a", b"b"], None)
