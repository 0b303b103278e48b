from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from tpk.errors import InputError
from tpk.input_source.datapoint import DatapointConverter

IMAGE = tf.TensorSpec([None, 3], tf.float32, "image")
LABEL = tf.TensorSpec([], tf.int32, "label")


def convert(value, dtype, shape=None):
    (array,) = DatapointConverter((tf.TensorSpec(shape, dtype, "x"),), "Source")([value], 4)
    assert array.dtype == tf.as_dtype(dtype).as_numpy_dtype
    return array


def misfit(value, dtype, shape=None):
    with pytest.raises(InputError, match=r"^Source: datapoint 4, component 0 \('x'\): ") as caught:
        convert(value, dtype, shape)
    return str(caught.value)


def test_arrays_that_fit_are_handed_on_untouched():
    image, label = np.zeros((2, 3), np.float32), np.array(1, np.int32)
    converter = DatapointConverter((IMAGE, LABEL), "Source")
    for datapoint in ([image, label], (image, label), {"label": label, "image": image}):
        taken = converter(datapoint, 0)
        assert taken[0] is image
        assert taken[1] is label


def test_each_array_is_checked_whatever_the_shape_of_the_one_before():
    converter = DatapointConverter((IMAGE, LABEL), "Source")
    label = np.array(1, np.int32)
    for rows in (2, 2, 5, 0, 2):
        image = np.zeros((rows, 3), np.float32)
        assert converter([image, label], 0)[0] is image
    for wrong in (np.zeros((2, 4), np.float32), np.zeros(2, np.float32), np.zeros((2, 3), np.complex64)):
        for index in (6, 7):  # What was refused once is refused again.
            with pytest.raises(InputError, match=rf"datapoint {index}, component 0 \('image'\)"):
                converter([wrong, label], index)
    assert converter([image, label], 8)[0] is image
    with pytest.raises(InputError, match=r"datapoint 9, component 1 \('label'\)"):
        converter([image, np.zeros(1, np.int32)], 9)


def test_the_first_empty_batch_is_warned_of(caplog):
    converter = DatapointConverter((IMAGE, tf.TensorSpec([None], tf.int32, "label")), "Source")
    images = np.zeros((2, 3), np.float32)
    for index, rows in enumerate([2, 0, 0]):
        converter([images[:rows], np.zeros(rows, np.int32)], index)
    (message,) = caplog.messages
    assert message.startswith("Source: datapoint 1 is empty")


def test_one_empty_component_is_no_empty_batch(caplog):
    boxes = np.zeros((0, 3), np.float32)
    DatapointConverter((IMAGE, LABEL), "Source")([boxes, np.int32(1)], 0)
    assert not caplog.messages


def test_a_masked_array_is_refused_because_its_mask_would_be_lost():
    assert "its mask would be lost" in misfit(np.ma.masked_less(np.float32([1, 2]), 2), tf.float32)


@given(
    hnp.arrays(st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]), hnp.array_shapes(min_side=0)),
    st.sampled_from([tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64]),
)
def test_whole_numbers_are_converted_exactly_or_refused(array, dtype):
    limits = np.iinfo(dtype.as_numpy_dtype)
    if all(limits.min <= int(value) <= limits.max for value in array.flat):
        assert convert(array, dtype).tolist() == array.tolist()
    else:
        assert f"do not fit into {dtype.name}" in misfit(array, dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (3, tf.int32, 3),
        (np.float64(0.5), tf.float32, 0.5),
        ([1, 2], tf.float32, [1.0, 2.0]),
        ([1.5, 2], tf.bfloat16, [1.5, 2.0]),
        (np.array([1, 2]), tf.bfloat16, [1.0, 2.0]),
        (np.array([float("inf"), 1.0]), tf.float32, [float("inf"), 1.0]),
        (True, tf.bool, True),
        (np.array([True, False]), tf.float32, [1.0, 0.0]),
        (1.0, tf.complex64, 1.0 + 0j),
        (np.array([1.0, 2.0], ">f4"), tf.float32, [1.0, 2.0]),
        ("é", tf.string, "é"),
        (b"a\0", tf.string, b"a\0"),
        (np.array(["a", "bc"]), tf.string, ["a", "bc"]),
    ],
)
def test_values_are_converted_where_nothing_is_lost(value, dtype, expected):
    assert convert(value, dtype).tolist() == expected


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        (1.5, tf.int32, "float64 cannot become int32 without loss"),
        (1j, tf.float32, "complex128 cannot become float32"),
        (1, tf.bool, "int64 cannot become bool"),
        ("1", tf.float32, "cannot become float32"),
        (
            None,
            tf.float32,
            "object cannot become float32 without loss. Expected float32 .*; got NoneType None",
        ),
        (1e300, tf.float32, "too large for float32"),
        (1e39, tf.bfloat16, "too large for bfloat16"),
        ([[1], [1, 2]], tf.float32, "it cannot be made an array"),
        ([1, "a"], tf.string, "an element is int 1, not text or bytes"),
        (np.datetime64("2020-01-01"), tf.int64, "cannot become int64"),
    ],
)
def test_values_are_refused_where_something_would_be_lost(value, dtype, why):
    assert re.search(why, misfit(value, dtype))


@pytest.mark.parametrize(
    ("spec", "shape"), [([2, 3], (3, 2)), ([None, 3], (2, 4)), ([None, 3], (3,)), ([], (1,)), ([2], ())]
)
def test_shapes_that_do_not_fit_are_refused(spec, shape):
    message = misfit(np.zeros(shape, np.float32), tf.float32, spec)
    assert f"the shape {shape} does not fit" in message
    assert f"Expected float32 of shape {tf.TensorShape(spec)}" in message
    assert f"got ndarray of dtype float32 and shape {shape}" in message


@pytest.mark.parametrize(
    ("spec", "shape"),
    [([2, 3], (2, 3)), ([None, 3], (0, 3)), ([None, None], (2, 4)), (None, (1, 2, 3)), ([], ())],
)
def test_shapes_that_fit_are_taken(spec, shape):
    assert convert(np.ones(shape, np.float32), tf.float32, spec).shape == shape


@pytest.mark.parametrize(
    ("datapoint", "message"),
    [
        ([1], "datapoint 4 has 1 components; expected 2: image, label"),
        ([1, 2, 3], "datapoint 4 has 3 components; expected 2"),
        ({"image": 1}, r"datapoint 4 has the keys \['image'\]; expected .* the keys \['image', 'label'\]"),
        ({"image": 1, "label": 2, "mask": 3}, r"datapoint 4 has the keys \['image', 'label', 'mask'\]; expected"),
        (
            np.zeros((2, 3)),
            r"datapoint 4 is ndarray of dtype float64 and shape \(2, 3\); expected a list or tuple",
        ),
        ("ab", "datapoint 4 is str 'ab'"),
    ],
)
def test_a_wrong_structure_is_refused(datapoint, message):
    with pytest.raises(InputError, match=f"Source: .*{message}"):
        DatapointConverter((IMAGE, LABEL), "Source")(datapoint, 4)


def test_the_component_is_named_by_name_and_position():
    with pytest.raises(InputError, match=r"component 1 \('label'\)"):
        DatapointConverter((IMAGE, LABEL), "Source")({"label": [1], "image": np.zeros((1, 3))}, 0)


def test_an_error_of_a_users_type_is_chained():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("mine")

    with pytest.raises(InputError, match="cannot be made an array") as caught:
        convert(Broken(), tf.float32)
    assert str(caught.value.__cause__) == "mine"
