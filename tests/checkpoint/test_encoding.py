from __future__ import annotations

import enum
import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tpk.checkpoint.encoding import TAG, decode, encode
from tpk.errors import CheckpointError

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.just(TAG) | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=10,
)


def same(first, second):
    """Whether two values are equal in type and value, down to the bits of a float."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return first.hex() == second.hex()
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return list(map(repr, first)) == list(map(repr, second)) and all(map(same, first.values(), second.values()))
    return first == second


@given(plain)
def test_plain_data_comes_back_as_what_it_was(value):
    assert same(decode(json.loads(json.dumps(encode(value), allow_nan=False))), value)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.1),
        np.float64(math.nan),
        np.int64(2**62),
        np.bool_(True),
        np.str_("ä"),
        np.datetime64("2020-01-01T00:00"),
        np.zeros([0, 3]),
        np.array(5, np.uint8),
        np.arange(6, dtype=">i2").reshape(2, 3).T,
        np.array(["a", "bcd"]),
    ],
    ids=repr,
)
def test_numpy_comes_back_bit_by_bit(value):
    back = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
    assert type(back) is type(value)
    assert (np.asarray(back).dtype, np.shape(back)) == (np.asarray(value).dtype, np.shape(value))
    assert np.asarray(back).tobytes() == np.asarray(value).tobytes()


def test_an_array_that_comes_back_can_be_written_to():
    back = decode(encode(np.zeros(3)))
    back[0] = 1


def test_random_states_come_back():
    numpy_state = np.random.get_state()
    back = decode(json.loads(json.dumps(encode({"python": random.getstate(), "numpy": numpy_state}))))
    assert back["python"] == random.getstate()
    assert all(map(np.array_equal, back["numpy"], numpy_state))


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": {"b": [1, {2}]}}, r"state\['a'\]\['b'\]\[1\] is \{2\}, a set"),
        ({"f": encode}, r"state\['f'\] is <function encode"),
        ([np.array([object()])], r"state\[0\] is an array of dtype object"),
        (np.zeros(2, [("x", "i4")]), "state is an array of dtype"),
    ],
)
def test_what_is_not_plain_is_an_error_that_says_where(value, where):
    with pytest.raises(CheckpointError, match=where + r".*Let state_dict return"):
        encode(value)


def nested(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "wrap",
    [lambda value: [value], lambda value: (value,), lambda value: {"a": value}, lambda value: {1: value}],
    ids=["list", "tuple", "dict", "pairs"],
)
def test_what_is_nested_as_deeply_as_can_be_written_can_be_read_and_the_rest_is_an_error(wrap):
    deepest = nested(100, wrap)
    assert decode(json.loads(json.dumps(encode(deepest)))) == deepest
    for depth in (101, 5_000):
        with pytest.raises(CheckpointError, match=r"mine\W.* is nested deeper than 100 levels"):
            encode(nested(depth, wrap), "mine")


@pytest.mark.parametrize("value", [{TAG: "strange"}, {TAG: []}, {TAG: "tuple"}, nested(101, lambda value: [value])])
def test_what_was_never_encoded_is_an_error(value):
    with pytest.raises(CheckpointError, match="holds what tpk does not write"):
        decode(value)


def test_subclasses_of_plain_types_become_plain():
    class Color(enum.IntEnum):
        RED = 3

    assert decode(encode(Color.RED)) == 3
