from __future__ import annotations

import fractions
import json

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import TpkError
from tpk.monitors.values import ReportedValueError, as_distribution, as_images, as_scalar, json_number


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        (2.5, 2.5),
        (True, 1),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.array(1.5), 1.5),
        (np.bool_(True), 1),
        (tf.bfloat16.as_numpy_dtype(0.5), 0.5),
        (tf.constant(4.0), 4.0),
    ],
)
def test_numbers_become_python_numbers(value, expected):
    number = as_scalar("x", value)
    assert number == expected
    assert type(number) is type(expected)


@pytest.mark.parametrize(
    "value",
    [
        [1.0],
        np.zeros(3),
        np.ones(1),
        "1.5",
        None,
        1j,
        np.datetime64("2020-01-01"),
        fractions.Fraction(1, 2),
        np.zeros((), [("a", "f4")]),
        {},
    ],
)
def test_a_value_that_is_not_a_single_number_is_an_error_that_names_the_scalar(value):
    with pytest.raises(ReportedValueError, match="scalar 'val-error'") as caught:
        as_scalar("val-error", value)
    assert isinstance(caught.value, TpkError)
    assert isinstance(caught.value, ValueError)


def test_a_tensor_without_a_value_is_an_error_that_says_what_to_report():
    with tf.Graph().as_default(), pytest.raises(ReportedValueError, match=r"scalar 'cost'.*Report its value"):
        as_scalar("cost", tf.constant(1.0))


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_name_must_be_a_string(name):
    with pytest.raises(ReportedValueError, match="name of a scalar"):
        as_scalar(name, 1)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4, 5), (1, 4, 5, 1)),
        ((4, 5, 1), (1, 4, 5, 1)),
        ((4, 5, 3), (1, 4, 5, 3)),
        ((4, 5, 4), (1, 4, 5, 4)),
        ((2, 4, 5, 3), (2, 4, 5, 3)),
    ],
)
def test_shapes_of_images(shape, expected):
    images = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    result = as_images("x", images)
    assert result.shape == expected
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result.ravel(), images.ravel())


@pytest.mark.parametrize("shape", [(4,), (4, 5, 2), (7, 4, 5), (2, 4, 5, 2), (0, 5), (1, 1, 4, 5, 3)])
def test_an_invalid_image_shape_is_an_error_that_names_it(shape):
    with pytest.raises(ReportedValueError, match="image 'samples'"):
        as_images("samples", np.zeros(shape))


def test_numbers_of_images_are_rounded_and_clipped():
    result = as_images("x", np.array([[-3.0, 0.4, 1.6, 254.7, 300.0, np.nan, np.inf]]))
    assert result.ravel().tolist() == [0, 0, 2, 255, 255, 0, 255]


@pytest.mark.parametrize("array", [np.array([["a"]]), np.zeros((2, 2), bool), np.zeros((2, 2), complex)])
def test_an_invalid_image_is_an_error(array):
    with pytest.raises(ReportedValueError, match="image 'x'"):
        as_images("x", array)


def test_a_distribution_is_flat():
    assert as_distribution("x", [[1, 2], [3, 4]]).tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("values", [[], ["a"], [1j]])
def test_an_invalid_distribution_is_an_error_that_names_it(values):
    with pytest.raises(ReportedValueError, match="histogram 'weights'"):
        as_distribution("weights", values)


def test_nan_and_infinities_survive_json():
    values = [1, 0.1, float("nan"), float("inf"), float("-inf")]
    text = json.dumps([json_number(value) for value in values], allow_nan=False)
    np.testing.assert_array_equal([float(value) for value in json.loads(text)], values)
