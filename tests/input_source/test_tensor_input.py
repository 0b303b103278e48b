from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import InputError
from tpk.input_source import DummyConstantInput, TensorInput


def test_each_tower_gets_tensors_of_its_own(drive, specs):
    calls = []

    def make():
        calls.append(len(calls))
        return [tf.constant(calls[-1]), tf.constant(10 * calls[-1])]

    with drive(TensorInput(make), specs("x", "y"), towers=3) as training:
        assert training.step() == [[0, 0], [1, 10], [2, 20]]
        training.source.reset_state()
    assert training.callbacks == []


def test_tensors_may_come_by_name(drive, specs):
    with drive(TensorInput(lambda: {"y": tf.constant(1), "x": tf.constant(2)}), specs("x", "y")) as training:
        assert training.step() == [[2, 1]]


def test_the_size_is_what_was_given():
    assert TensorInput(list).size is None
    assert TensorInput(list, size=7).size == 7


def test_tensors_get_the_shape_of_the_signature(drive):
    def make():
        return [tf.compat.v1.placeholder_with_default(np.zeros((2, 3), np.float32), None)]

    training = drive(TensorInput(make), [tf.TensorSpec([None, 3], tf.float32, "x")])
    assert training.towers[0][0].shape.as_list() == [None, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [tf.constant(1)], r"has 1 components; expected 2: x, y"),
        (lambda: [tf.constant(1), tf.constant(1.0)], r"component 1 \('y'\) must be int32"),
        (lambda: [tf.constant([1]), tf.constant(1)], r"component 0 \('x'\) must have the shape \(\)"),
        (lambda: {"x": 1, "z": 2}, r"has the keys \['x', 'z'\]; expected a dict with exactly the keys \['x', 'y'\]"),
        (lambda: tf.constant(1), "is .*; expected a list or tuple of 2 components"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(drive, specs, make, message):
    with pytest.raises(InputError, match=f"the datapoint of TensorInput:? {message}"):
        drive(TensorInput(make), specs("x", "y"))


SIGNATURE = [
    tf.TensorSpec([2, 3], tf.float32, "x"),
    tf.TensorSpec([2], tf.string, "text"),
    tf.TensorSpec([], tf.bool, "flag"),
    tf.TensorSpec([4], tf.bfloat16, "half"),
]


def test_dummies_fit_the_signature(drive):
    with drive(DummyConstantInput(), SIGNATURE) as training:
        ((x, text, flag, half),) = training.step()
    assert np.array_equal(x, np.zeros((2, 3), np.float32))
    assert text.tolist() == [b"", b""]
    assert not flag
    assert half.dtype == tf.bfloat16.as_numpy_dtype


def test_dummies_are_small_in_the_graph(drive):
    training = drive(DummyConstantInput([[1000, 1000]]), [tf.TensorSpec([None, None], tf.int32, "x")])
    assert training.towers[0][0].shape == [1000, 1000]
    assert training.graph.as_graph_def().ByteSize() < 1000


def test_dummies_need_known_shapes(drive):
    with pytest.raises(InputError, match=r"fully known shape for 'x', not \((None|\?), 3\)"):
        drive(DummyConstantInput(), [tf.TensorSpec([None, 3], tf.float32, "x")])


def test_dummies_need_a_shape_for_each_input(drive):
    with pytest.raises(InputError, match="has 1 shapes, but the signature has 4"):
        drive(DummyConstantInput([[2, 3]]), SIGNATURE)


def test_shapes_of_dummies_fit_the_signature(drive):
    with pytest.raises(InputError, match=r"component 0 \('x'\) must have the shape"):
        drive(DummyConstantInput([[2, 4]]), [tf.TensorSpec([None, 3], tf.float32, "x")])
