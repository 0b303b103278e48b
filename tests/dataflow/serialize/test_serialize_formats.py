from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as st_numpy

from tpk.dataflow import HDF5Serializer, LMDBSerializer, NumpySerializer, TFRecordSerializer
from tpk.dataflow.serialize.packing import DatapointPacker
from tpk.errors import InputError

msgpack = pytest.importorskip("msgpack")
tf = pytest.importorskip("tensorflow")

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
        (object(), "a value of type object is no array"),
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


@pytest.fixture
def tensorpack_files(tmp_path):
    """The files that tensorpack's serializers write, written as they do it."""
    lmdb = pytest.importorskip("lmdb")
    datapoints = [[np.full((2, 3), number), number] for number in range(12)]
    paths = {kind: str(tmp_path / kind) for kind in ("lmdb", "directory", "msgpack", "tfrecord", "npz")}
    os.mkdir(paths["directory"])
    for kind, dumps in (("lmdb", pickle.dumps), ("directory", pickle.dumps), ("msgpack", dumps_msgpack_numpy)):
        keys = [f"{number:08}".encode() for number in range(12)]
        with lmdb.open(paths[kind], subdir=kind == "directory", lock=False) as db, db.begin(write=True) as transaction:
            for key, datapoint in zip(keys, datapoints, strict=True):
                transaction.put(key, dumps(datapoint))
            transaction.put(b"__keys__", dumps(keys))
    with tf.io.TFRecordWriter(paths["tfrecord"]) as writer:
        for datapoint in datapoints:
            writer.write(pickle.dumps(datapoint, protocol=-1))
    buffer = np.empty((12, 2), object)
    buffer[:] = datapoints
    with open(paths["npz"], "wb") as file:
        np.savez_compressed(file, buffer=buffer)
    return paths


def dumps_msgpack_numpy(value):
    def default(array):
        kind = {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape, b"data": array.tobytes()}
        return kind

    return msgpack.packb(value, default=default)


@pytest.mark.parametrize(
    ("kind", "load"),
    [
        ("lmdb", LMDBSerializer.load),
        ("directory", LMDBSerializer.load),
        ("tfrecord", TFRecordSerializer.load),
        ("npz", NumpySerializer.load),
    ],
)
def test_files_of_tensorpack(tensorpack_files, kind, load):
    with pytest.raises(InputError, match="allow_pickle=True"):
        list(load(tensorpack_files[kind]))
    flow = load(tensorpack_files[kind], allow_pickle=True)
    assert len(flow) == 12
    loaded = list(flow)
    assert [number for _, number in loaded] == list(range(12))
    assert all((array == number).all() and array.shape == (2, 3) for array, number in loaded)


def test_lmdb_files_that_tensorpack_wrote_with_msgpack(tensorpack_files):
    loaded = list(LMDBSerializer.load(tensorpack_files["msgpack"]))
    assert [number for _, number in loaded] == list(range(12))
    assert all((array == number).all() and array.shape == (2, 3) for array, number in loaded)


def test_loading_runs_no_code(tmp_path, monkeypatch):
    lmdb = pytest.importorskip("lmdb")
    monkeypatch.chdir(tmp_path)
    with lmdb.open("bomb.lmdb", subdir=False, lock=False) as db, db.begin(write=True) as transaction:
        transaction.put(b"00000000", pickle.dumps(Bomb()))
        transaction.put(b"__keys__", pickle.dumps(Bomb()))
    np.savez("bomb.npz", buffer=np.array([Bomb()], object))
    for load, path in ((LMDBSerializer.load, "bomb.lmdb"), (NumpySerializer.load, "bomb.npz")):
        with pytest.raises(InputError, match="if you trust the file"):
            list(load(path))
    assert sorted(os.listdir()) == ["bomb.lmdb", "bomb.npz"]


def test_an_lmdb_grows_beyond_its_first_size(tmp_path):
    pytest.importorskip("lmdb")
    block = np.arange(5 << 20, dtype=np.uint8)
    LMDBSerializer.save(([block, number] for number in range(30)), tmp_path / "large")
    flow = LMDBSerializer.load(tmp_path / "large", shuffle=True)
    assert sorted(number for _, number in flow) == list(range(30))
    assert (next(iter(flow))[0] == block).all()


def test_a_flipped_bit_in_a_tfrecord_is_an_error(tmp_path):
    path = tmp_path / "data"
    TFRecordSerializer.save([[np.zeros(1000), number] for number in range(3)], path)
    content = bytearray(path.read_bytes())
    content[12000] ^= 1
    path.write_bytes(content)
    iterator = iter(TFRecordSerializer.load(path))
    assert next(iterator)[1] == 0
    with pytest.raises(InputError, match="data is damaged"):
        next(iterator)


def test_a_flipped_bit_in_an_hdf5_file_is_an_error(tmp_path):
    path = tmp_path / "data"
    HDF5Serializer.save([[np.full(1000, 7.0), number] for number in range(3)], path)
    content = bytearray(path.read_bytes())
    content[content.find(np.float64(7).tobytes() * 1000) + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="data is damaged"):
        list(HDF5Serializer.load(path))


def test_tensorflow_reads_the_records(tmp_path):
    TFRecordSerializer.save([[number] for number in range(5)], tmp_path / "data")
    with tf.compat.v1.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = tf.data.TFRecordDataset(str(tmp_path / "data")).take(5)
        record = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        assert [msgpack.unpackb(session.run(record)) for _ in range(5)] == [[number] for number in range(5)]


def test_numpy_reads_the_columns(tmp_path):
    NumpySerializer.save([{"image": np.full(3, number), "label": number} for number in range(4)], tmp_path / "data")
    with np.load(tmp_path / "data") as file:
        np.testing.assert_array_equal(file["column_0"], np.repeat(np.arange(4)[:, None], 3, axis=1))
        np.testing.assert_array_equal(file["column_1"], np.arange(4))


def test_an_npz_of_another_program_is_an_error_that_says_what_to_do(tmp_path):
    np.savez(tmp_path / "mnist.npz", x_train=np.zeros(3), y_train=np.zeros(3))
    with pytest.raises(InputError, match=r"has the arrays \['x_train', 'y_train'\]. Read it with numpy.load"):
        NumpySerializer.load(tmp_path / "mnist.npz")


def test_hdf5_paths_and_files_of_other_programs(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = str(tmp_path / "data")
    HDF5Serializer.save([[np.arange(3), number] for number in range(4)], path, ["train/image", "train/label"])
    with h5py.File(path) as file:
        assert file["train/image"].shape == (4, 3)
    assert [label for _, label in HDF5Serializer.load(path)] == [0, 1, 2, 3]
    assert [label for (label,) in HDF5Serializer.load(path, ["train/label"])] == [0, 1, 2, 3]
    foreign = str(tmp_path / "foreign")
    with h5py.File(foreign, "w") as file:
        file["x"], file["y"], file["short"] = np.arange(6).reshape(3, 2), np.arange(3), np.arange(2)
    assert [(x.tolist(), y) for x, y in HDF5Serializer.load(foreign, ["x", "y"])] == [
        ([0, 1], 0),
        ([2, 3], 1),
        ([4, 5], 2),
    ]
    with pytest.raises(InputError, match=r"say with data_paths= .* It has \['short', 'x', 'y'\]"):
        HDF5Serializer.load(foreign)
    with pytest.raises(InputError, match="has no dataset 'z' with rows"):
        HDF5Serializer.load(foreign, ["x", "z"])
    with pytest.raises(InputError, match="the dataset 'short' has 2 rows, and should have 3"):
        HDF5Serializer.load(foreign, ["x", "short"])


def test_hdf5_paths_must_fit_the_datapoints(tmp_path):
    pytest.importorskip("h5py")
    with pytest.raises(InputError, match=r"datapoint 0 has the components \['0', '1'\], which \['a'\] do not fit"):
        HDF5Serializer.save([[1, 2]], tmp_path / "data", ["a"])


def test_hdf5_is_written_in_blocks(tmp_path):
    pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    blocks = rng.random((6, 1 << 20)).astype(np.float32)
    HDF5Serializer.save([[block, str(number)] for number, block in enumerate(blocks)] * 2, tmp_path / "data")
    flow = HDF5Serializer.load(tmp_path / "data")
    for number, (block, text) in enumerate(flow):
        assert text == str(number % 6)
        np.testing.assert_array_equal(block, blocks[number % 6])
