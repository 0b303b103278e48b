from __future__ import annotations

import collections
import enum
import pickle
import signal

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as numbers

from tpk.strategies.processes.plain_data import pack, unpack

KINDS = ("b1", "i1", "u2", "i8", "f2", "f4", ">f8", "c8", "S3", "U4", "M8[s]", "m8[ns]", "bfloat16", "float8_e5m2")


def arrays():
    shapes = numbers.array_shapes(min_dims=0, min_side=0, max_side=3)
    return st.tuples(st.sampled_from(KINDS), shapes, st.binary(min_size=1, max_size=9)).map(make_array)


def make_array(drawn):
    kind, shape, seed = drawn
    if kind == "U4":  # Not all bytes are text.
        return np.full(shape, seed.hex()[:4])
    return np.resize(np.frombuffer(seed * 16, np.uint8), [*shape, np.dtype(kind).itemsize]).view(kind).reshape(shape)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    arrays(),
    arrays().map(lambda array: array.ravel()[0] if array.size else None),
)
KEYS = st.one_of(st.text(), st.integers(), st.tuples(st.booleans(), st.binary()))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(KEYS, inner), st.dictionaries(st.text(), inner)
    ),
    max_leaves=20,
)


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert_same(list(got.items()), list(expected.items()))
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert (got.dtype, got.shape, got.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    elif isinstance(expected, float):
        assert repr(got) == repr(expected)
    else:
        assert got == expected


@given(VALUES)
@example(np.bytes_(b""))
def test_values_come_back_bit_by_bit(value):
    assert_same(unpack(pack(one=value, other=[value])), {"one": value, "other": [value]})


def test_arrays_of_objects_and_unusual_layouts_come_back():
    strings = np.array([[b"a\0", "b"], [None, b""]], object)
    got = unpack(pack(x=[strings, np.asfortranarray(np.eye(3)), np.arange(9)[::2]]))["x"]
    np.testing.assert_equal(got, [strings, np.eye(3), np.arange(0, 9, 2)])
    got[1][0] = 5


class Colour(str, enum.Enum):
    RED = "red"


def test_members_of_enumerations_come_back_as_what_they_are_equal_to():
    got = unpack(pack(x=[signal.SIGTERM, Colour.RED, {Colour.RED: 1}]))["x"]
    assert_same(got, [int(signal.SIGTERM), "red", {"red": 1}])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {2}]}, r"value\['a'\]\[1\] is a builtins.set; expected None, bools, "),
        ([lambda: None], r"value\[0\] is a builtins.function"),
        (collections.OrderedDict(a=1), "value is a collections.OrderedDict"),
        (collections.namedtuple("Pair", "a b")(1, 2), "Pair"),
        ({frozenset(): 1}, r"value.keys\(\)\[0\] is a builtins.frozenset"),
        (np.ma.masked_array([1, 2], [True, False]), "MaskedArray"),
        (np.zeros(2, [("x", int)]), "value is of dtype"),
        (np.array([object()]), r"value\[0\] is a builtins.object"),
    ],
)
def test_what_would_not_come_back_the_same_is_refused(value, message):
    with pytest.raises(TypeError, match=message):
        pack(value=value)


GOOD = pack(x=[np.arange(4), b"abc", "text", ml_dtypes.bfloat16(1)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}",
        b'{"x":{}}\n',
        b'{"x":{"array":["<i8",[1]],"tuple":[]}}\n',
        b'{"x":{"set":[1]}}\n',
        b'{"x":{"bytes":-1}}\nabc',
        b'{"x":{"bytes":4}}\nabc',
        b'{"x":{"array":["O",[1]]}}\n' + b"\x01" * 8,
        b'{"x":{"array":["<i8",[-1,-1]]}}\n' + b"\x01" * 8,
        b'{"x":{"array":["<i8",[99999999999999]]}}\n' + b"\x01" * 8,
        b'{"x":{"array":["no_such_type",[1]]}}\n' + b"\x01" * 8,
        b'{"x":{"dict":[[[1]],[2]]}}\n',
        b"[" * 100_000 + b"\n",
        GOOD + b"x",
        GOOD[:-1],
        pickle.dumps({"what": 1}),
    ],
)
def test_other_bytes_are_an_error(data):
    with pytest.raises(ValueError, match="bytes are no plain data"):
        unpack(data)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_damaged_bytes_are_an_error_or_other_values(place, byte):
    damaged = GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]
    try:
        unpack(damaged)
    except ValueError as error:
        assert "bytes are no plain data" in str(error)
