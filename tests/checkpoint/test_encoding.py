from __future__ import annotations

import collections
import enum
import json
import math
import random
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as numbers

from tpk.checkpoint.encoding import TAG, decode, encode
from tpk.errors import CheckpointError

KINDS = (
    "b1",
    "i1",
    "u2",
    "i8",
    "f2",
    "f4",
    ">f8",
    "c8",
    "S3",
    "U4",
    "M8[s]",
    "m8[ns]",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e5m2,
)


def arrays():
    shapes = numbers.array_shapes(min_dims=0, min_side=0, max_side=3)
    return st.tuples(st.sampled_from(KINDS), shapes, st.binary(min_size=1, max_size=9)).map(make_array)


def make_array(drawn):
    kind, shape, seed = drawn
    if kind == "U4":  # Not all bytes are text.
        return np.full(shape, seed.hex()[:4])
    return np.resize(np.frombuffer(seed * 16, np.uint8), [*shape, np.dtype(kind).itemsize]).view(kind).reshape(shape)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    arrays(),
    arrays().map(lambda array: array.ravel()[0] if array.size else None),
)
keys = st.text() | st.integers() | st.just(TAG) | st.tuples(st.booleans(), st.binary())
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.builds(collections.deque, st.lists(inner), st.none() | st.integers(0, 9))
        | st.sets(keys)
        | st.frozensets(keys)
        | st.dictionaries(keys, inner)
    ),
    max_leaves=20,
)


def same(first, second):
    """Whether two values are equal in type and value, down to the bits of a float."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return first.hex() == second.hex()
    if isinstance(first, np.ndarray | np.generic):
        return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())
    if isinstance(first, list | tuple | collections.deque):
        if getattr(first, "maxlen", None) != getattr(second, "maxlen", None):
            return False
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return list(map(repr, first)) == list(map(repr, second)) and all(map(same, first.values(), second.values()))
    return first == second


def through_json(value):
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


def through_buffers(value):
    buffers = []
    return decode(json.loads(json.dumps(encode(value, buffers=buffers), allow_nan=False)), buffers)


@pytest.mark.parametrize("through", [through_json, through_buffers])
@given(plain)
@example(np.bytes_(b""))
@example(np.float64(math.nan))
@example(np.str_("ä"))
@example(np.arange(6, dtype=">i2").reshape(2, 3).T)
@example(np.arange(9)[::2])
@example({frozenset({1}): {frozenset({"a"})}})
def test_plain_data_comes_back_as_what_it_was(through, value):
    assert same(through(value), value)


def test_buffers_hold_the_content_of_bytes_and_arrays():
    buffers = []
    encode({"a": np.arange(2, dtype="u1"), "b": [b"xyz"]}, buffers=buffers)
    assert buffers == [b"\0\1", b"xyz"]


@pytest.mark.parametrize("through", [through_json, through_buffers])
def test_arrays_of_objects_come_back(through):
    strings = np.array([[b"a\0", "b"], [None, [1, 2]]], object)
    np.testing.assert_equal(through(strings), strings)


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
        ({"a": {"b": [1, range(2)]}}, r"state\['a'\]\['b'\]\[1\] is not plain data: range range\(0, 2\)"),
        ({"f": encode}, r"state\['f'\] is not plain data: function <function enc"),
        ([np.array([object()])], r"state\[0\]\[0\] is not plain data: object <object"),
        (
            np.ma.masked_array([1, 2], [True, False]),
            "state is not plain data: MaskedArray of dtype int64 and shape",
        ),
        ({range(0): 1}, r"a key of state is not plain data: range range\(0, 0\)"),
        (np.zeros(2, [("x", "i4")]), "state is an array of dtype"),
    ],
)
def test_what_is_not_plain_is_an_error_that_says_where(value, where):
    with pytest.raises(CheckpointError, match=r"(?s)" + where + r".*Use .*only\."):
        encode(value)


def test_the_length_to_which_a_deque_is_limited_comes_back():
    replay = collections.deque([np.zeros(2), np.ones(2)], maxlen=2)
    back = through_json(replay)
    back.append(np.full(2, 2.0))
    assert [array.tolist() for array in back] == [[1, 1], [2, 2]]


def test_an_error_does_not_print_all_of_the_value():
    memory = collections.UserList(range(100_000))
    with pytest.raises(CheckpointError) as caught:
        encode({"memory": memory})
    assert re.match(r"state\['memory'\] is not plain data: UserList .{1,40}\. Use ", str(caught.value))


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


@pytest.mark.parametrize("value", [{TAG: "strange"}, {TAG: []}, {TAG: "tuple"}, nested(5_000, lambda value: [value])])
def test_what_was_never_encoded_is_an_error(value):
    with pytest.raises(CheckpointError, match="holds data that tpk does not write"):
        decode(value)


class Color(enum.IntEnum):
    RED = 3


class Name(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize("through", [through_json, through_buffers])
def test_subclasses_of_plain_types_become_plain(through):
    pair = collections.namedtuple("Pair", "a b")
    given = [Color.RED, Name.RED, {Name.RED: 1}, pair(1, 2), collections.OrderedDict(a=1)]
    assert same(through(given), [3, "red", {"red": 1}, (1, 2), {"a": 1}])
