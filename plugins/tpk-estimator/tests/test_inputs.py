from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from tpk_estimator.inputs import numpy_input_fn, pandas_input_fn

v1 = tf.compat.v1

X = {"b": np.arange(7), "a": np.arange(14.0).reshape(7, 2)}
Y = np.arange(100, 107)
FRAME = pd.DataFrame({"size": [1, 2, 3], "name": ["x", "y", "z"]}, index=[10, 11, 12])


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def batches(input_fn, most=20):
    tensors = input_fn()
    with v1.Session() as sess:
        coord = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(sess, coord)
        found = []
        with pytest.raises(tf.errors.OutOfRangeError) if most == 20 else coord.stop_on_exception():
            for _ in range(most):
                found.append(sess.run(tensors))
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=30)
    return found


def test_batches_go_on_over_the_end_of_an_epoch():
    found = batches(numpy_input_fn(X, Y, batch_size=3, num_epochs=2, shuffle=False))
    assert [labels.tolist() for _, labels in found] == [
        [100, 101, 102],
        [103, 104, 105],
        [106, 100, 101],
        [102, 103, 104],
        [105, 106],
    ]
    features = found[2][0]
    assert features["b"].tolist() == [6, 0, 1]
    assert features["a"].tolist() == [[12, 13], [0, 1], [2, 3]]


def test_without_an_end_batches_have_a_static_size():
    input_fn = numpy_input_fn(X, batch_size=3, num_epochs=None, shuffle=False)
    assert [batch["b"].tolist() for batch in batches(input_fn, most=3)] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    assert input_fn()["a"].shape == (3, 2)


def test_arrays_without_names_come_back_without_names():
    ((x, y),) = batches(numpy_input_fn(X["a"], Y, shuffle=False))
    assert (x == X["a"]).all()
    assert (y == Y).all()


def test_labels_may_be_a_dict():
    ((_, labels),) = batches(numpy_input_fn(X, {"p": Y, "q": -Y}, shuffle=False))
    assert (labels["q"] == -Y).all()


def test_shuffled_rows_stay_together_and_all_appear():
    found = batches(numpy_input_fn(X, Y, batch_size=4, shuffle=True))
    rows = [(int(b), int(y)) for features, labels in found for b, y in zip(features["b"], labels, strict=True)]
    assert sorted(rows) == [(i, 100 + i) for i in range(7)]


def test_each_thread_makes_its_own_epochs():
    found = batches(numpy_input_fn(X["b"], batch_size=3, num_epochs=2, shuffle=True, num_threads=4))
    assert sorted(np.concatenate(found)) == sorted([*range(7)] * 8)


@pytest.mark.parametrize(
    ("shuffle", "tag"),
    [
        (False, "enqueue_input/queue/enqueue_input/fifo_queuefraction_over_0_of_20_full"),
        (True, "enqueue_input/queue/enqueue_input/random_shuffle_queuefraction_over_5_of_15_full"),
    ],
)
def test_a_summary_says_how_full_the_queue_is(graph, shuffle, tag):
    numpy_input_fn(X, shuffle=shuffle, queue_capacity=20)()
    (summary,) = graph.get_collection(v1.GraphKeys.SUMMARIES)
    with v1.Session() as sess:
        (value,) = v1.Summary.FromString(sess.run(summary)).value
    assert (value.tag, value.simple_value) == (tag, 0)


def test_a_failing_feed_stops_the_training(graph):
    numpy_input_fn({"words": np.array([b"a", object()], object)}, batch_size=1, shuffle=False)()
    with v1.Session() as sess:
        coord = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(sess, coord)
        with pytest.raises(Exception, match="object"):
            coord.join(threads, stop_grace_period_secs=30)


def test_columns_of_a_frame():
    found = batches(pandas_input_fn(FRAME, pd.Series([5, 6, 7], FRAME.index), batch_size=2, shuffle=False))
    assert [(f["size"].tolist(), f["name"].tolist(), y.tolist()) for f, y in found] == [
        ([1, 2], [b"x", b"y"], [5, 6]),
        ([3], [b"z"], [7]),
    ]


def test_labels_may_be_a_frame():
    ((_, labels),) = batches(pandas_input_fn(FRAME, FRAME[["size"]], shuffle=False))
    assert labels["size"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("x", "y", "options", "error", "words"),
    [
        (X, Y, {}, ValueError, "shuffle must be True"),
        ({}, Y, {"shuffle": True}, ValueError, "x is an empty dict"),
        (X, {}, {"shuffle": True}, ValueError, "or None"),
        ([1], Y, {"shuffle": True}, TypeError, r"got list: use np.asarray"),
        (X, [1], {"shuffle": True}, TypeError, r"y must be an array, but is a list"),
        ({"a": [1]}, None, {"shuffle": True}, TypeError, r"x\['a'\] must be an array"),
        (X, Y[:3], {"shuffle": True}, ValueError, "same number of rows"),
        (X, {"a": Y}, {"shuffle": True}, ValueError, "'a' is in both x and y"),
    ],
)
def test_wrong_arrays(x, y, options, error, words):
    with pytest.raises(error, match=words):
        numpy_input_fn(x, y, **options)


@pytest.mark.parametrize(
    ("x", "y", "error", "words"),
    [
        (X, None, TypeError, "pandas.DataFrame, but got dict"),
        (FRAME, [1, 2, 3], TypeError, "pandas.Series"),
        (FRAME, pd.Series([1, 2, 3]), ValueError, "same index"),
        (FRAME.rename(columns={"size": "target"}), FRAME["size"], ValueError, "another target_column"),
    ],
)
def test_wrong_frames(x, y, error, words):
    with pytest.raises(error, match=words):
        pandas_input_fn(x, y, shuffle=False)
