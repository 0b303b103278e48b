from __future__ import annotations

import os
import pickle

import lmdb
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as st_numpy
from tpk_lmdb import DatapointPacker, LMDBSerializer

from tpk.errors import InputError

arrays = st_numpy.arrays(
    st.one_of(
        st_numpy.boolean_dtypes(),
        st_numpy.integer_dtypes(endianness="?"),
        st_numpy.floating_dtypes(),
        st_numpy.complex_number_dtypes(),
        st_numpy.datetime64_dtypes(),
        st_numpy.byte_string_dtypes(),
        st_numpy.unicode_string_dtypes(),
        st_numpy.array_dtypes(st_numpy.integer_dtypes()),
    ),
    st_numpy.array_shapes(min_dims=0, min_side=0, max_side=4),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(),
    st.binary(),
    st.floats(width=32).map(np.float32),
    st.integers(0, 255).map(np.uint8),
)
values = st.recursive(
    st.one_of(scalars, arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers(0, 9)), inner, max_size=3),
    ),
    max_leaves=6,
)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return one == other or (one != one and other != other)


@given(values)
def test_packed_datapoints_come_back_as_they_were(value):
    packer = DatapointPacker("Test")
    assert same(packer.unpack(packer.pack(value, 0), "here"), value)


@given(st.binary(min_size=1))
def test_foreign_bytes_are_read_or_an_error(data):
    try:
        DatapointPacker("Test").unpack(data, "here")
    except InputError as error:
        assert "here" in str(error)


def test_text_in_arrays():
    packer = DatapointPacker("Test")
    array = np.array([["a\0", b"b\0"], ["ä", ""]], dtype=object)
    loaded = packer.unpack(packer.pack([array], 0), "here")[0]
    assert loaded.dtype == object
    assert loaded.tolist() == array.tolist()


def test_what_has_an_array_is_stored_as_one():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3)

    packer = DatapointPacker("Test")
    (loaded,) = packer.unpack(packer.pack([Tensor()], 0), "here")
    np.testing.assert_array_equal(loaded, [0, 1, 2])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "a value of type object is not an array"),
        (np.array([object()]), "an array of objects can be stored if"),
        (2**70, "cannot be stored"),
        ({1, 2}, "a value of type set"),
    ],
)
def test_what_cannot_be_stored_is_an_error(value, message):
    with pytest.raises(InputError, match=f"Test: datapoint 7 of the flow cannot be stored: .*{message}|{message}"):
        DatapointPacker("Test").pack([value], 7)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_loading_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with lmdb.open("bomb.lmdb", subdir=False, lock=False) as db, db.begin(write=True) as transaction:
        transaction.put(b"00000000", pickle.dumps(Bomb()))
        transaction.put(b"__tpk_length__", b"1")
    with pytest.raises(InputError, match=r"datapoint 0 of bomb\.lmdb cannot be read"):
        list(LMDBSerializer.load("bomb.lmdb"))
    assert os.listdir() == ["bomb.lmdb"]


def test_a_file_of_tensorpack_is_refused_with_the_name_of_its_reader(tmp_path):
    path = str(tmp_path / "train.lmdb")
    with lmdb.open(path, subdir=False, lock=False) as db, db.begin(write=True) as transaction:
        transaction.put(b"00000000", pickle.dumps([1]))
        transaction.put(b"__keys__", pickle.dumps([b"00000000"]))
    with pytest.raises(InputError, match=r"read it with tpk_tensorpack\.dataflow\.LMDBSerializer"):
        LMDBSerializer.load(path)


def test_an_lmdb_grows_beyond_its_first_size(tmp_path):
    block = np.arange(5 << 20, dtype=np.uint8)
    LMDBSerializer.save(([block, number] for number in range(30)), tmp_path / "large")
    flow = LMDBSerializer.load(tmp_path / "large", shuffle=True)
    assert sorted(number for _, number in flow) == list(range(30))
    assert (next(iter(flow))[0] == block).all()
