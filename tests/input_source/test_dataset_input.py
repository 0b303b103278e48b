from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import InputError
from tpk.input_source import TFDatasetInput


def five():
    return tf.data.Dataset.range(5).map(lambda number: tf.cast(number, tf.int32)).map(lambda number: (number,))


def test_a_dataset_that_was_made_eagerly_asks_for_a_function(drive, specs):
    with pytest.raises(InputError, match="give a function that makes the dataset"):
        drive(TFDatasetInput(five()), specs("number"))


def test_a_dataset_of_another_graph_asks_for_a_function(drive, specs):
    with tf.Graph().as_default():
        dataset = five()
    with pytest.raises(InputError, match="give a function that makes the dataset"):
        drive(TFDatasetInput(dataset), specs("number"))


def test_a_dataset_of_the_same_graph_is_taken(specs):
    with tf.Graph().as_default():
        source = TFDatasetInput(five())
        (callback,) = source.setup(specs("number"))
        (number,) = source.get_input_tensors()
        with tf.compat.v1.Session() as sess:
            source.innermost.start(sess)
            assert [sess.run(number) for _ in range(6)] == [0, 1, 2, 3, 4, 0]
    assert not callback.chief_only


@pytest.mark.parametrize("dataset", [3, lambda: 3])
def test_what_is_no_dataset_is_refused(drive, specs, dataset):
    with pytest.raises(InputError, match=r"takes a tf\.data\.Dataset"):
        drive(TFDatasetInput(dataset), specs("number"))


def test_elements_may_be_dicts(drive, specs):
    def dataset():
        return tf.data.Dataset.from_tensor_slices({"y": tf.range(10, 15), "x": tf.range(5)})

    with drive(TFDatasetInput(dataset), specs("x", "y")) as training:
        assert training.step() == [[0, 10]]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (lambda: tf.data.Dataset.range(5), "is .*; expected a list or tuple of 1 components"),
        (lambda: tf.data.Dataset.range(5).map(lambda x: (x, x)), "has 2 components; expected 1: number"),
        (lambda: tf.data.Dataset.range(5).map(lambda x: (x,)), r"component 0 \('number'\) must be int32"),
        (lambda: five().batch(2), r"component 0 \('number'\) must have the shape \(\)"),
        (lambda: tf.data.Dataset.from_tensor_slices({"x": tf.range(3)}), r"has the keys \['x'\]"),
    ],
)
def test_elements_that_do_not_fit_are_refused(drive, specs, dataset, message):
    with pytest.raises(InputError, match=f"the datapoint of TFDatasetInput.*{message}"):
        drive(TFDatasetInput(dataset), specs("number"))


def test_a_size_that_is_given_is_the_size(drive, specs):
    source = TFDatasetInput(five, size=3)
    assert source.size == 3
    with drive(source, specs("number")):
        assert source.size == 3


def test_the_size_is_unknown_before_the_training_and_for_a_filtered_dataset(drive, specs):
    source = TFDatasetInput(lambda: five().filter(lambda number: number > 2))
    with drive(source, specs("number")) as training:
        assert source.size is None
        assert training.first_components(3) == [3, 4, 3]


def test_an_error_of_tf_data_stays_what_it_is(drive, specs):
    def checked():
        def check(number):
            with tf.control_dependencies([tf.debugging.assert_less(number, 2, "too large")]):
                return (tf.identity(number),)

        return five().map(check)

    with drive(TFDatasetInput(checked), specs("number")) as training:
        assert training.first_components(2) == [0, 1]
        with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
            training.step()


def test_shapes_of_a_flow_may_vary_where_the_signature_says_so(drive):
    flow = [[np.zeros((rows, 2), np.float32)] for rows in (1, 3)]
    with drive(TFDatasetInput(flow), [tf.TensorSpec([None, 2], tf.float32, "x")]) as training:
        assert [training.step()[0][0].shape for _ in range(2)] == [(1, 2), (3, 2)]


@pytest.mark.parametrize(
    ("seed", "graph_seed", "warned"), [(None, None, True), (3, None, False), (0, None, False), (None, 7, False)]
)
def test_a_shuffle_that_a_resumed_training_cannot_repeat_is_warned_of(seed, graph_seed, warned, specs, caplog):
    def dataset():
        return five().shuffle(9, seed=seed).prefetch(1)

    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(graph_seed)
        TFDatasetInput(dataset).setup(specs("number"))
    assert any("shuffles without a seed" in message for message in caplog.messages) == warned
