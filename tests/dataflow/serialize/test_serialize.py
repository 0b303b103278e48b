from __future__ import annotations

import os
import pickle
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

from tpk.dataflow import HDF5Serializer, LMDBSerializer, NumpySerializer, TFRecordSerializer
from tpk.dataflow.memory import ALIGNMENT
from tpk.dataflow.position import Position
from tpk.errors import ConfigError, InputError, PluginImportError

pytest.importorskip("tensorflow")

SERIALIZERS = [LMDBSerializer, TFRecordSerializer, HDF5Serializer, NumpySerializer]
OF_ANY_STRUCTURE = SERIALIZERS[:2]
OF_COLUMNS = SERIALIZERS[2:]
LIBRARIES = {LMDBSerializer: "lmdb", TFRecordSerializer: "msgpack", HDF5Serializer: "h5py", NumpySerializer: "numpy"}


@pytest.fixture(params=SERIALIZERS, ids=lambda serializer: serializer.__name__)
def serializer(request):
    pytest.importorskip(LIBRARIES[request.param])
    return request.param


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "data")


def flow_of(count):
    return [[np.full((3, 4), number, np.float32), number, f"No. {number} ä"] for number in range(count)]


def numbers(datapoints):
    return [int(number) for _, number, _ in datapoints]


def test_what_was_saved_is_loaded(serializer, path):
    serializer.save(flow_of(50), path)
    flow = serializer.load(path)
    flow.reset_state()
    assert len(flow) == 50
    for _ in range(2):
        for number, (array, label, text) in enumerate(flow):
            assert array.dtype == np.float32 and array.shape == (3, 4) and (array == number).all()
            assert label == number and type(text) is str and text == f"No. {number} ä"
            # Whoever changes an array in place does not change the next epoch.
            assert array.ctypes.data % ALIGNMENT == 0
            array[:] = -1


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_the_structure_comes_back(serializer, path, kind):
    flow = [{"a": 1.5, "b/c": np.arange(3)}] * 3 if kind is dict else [kind([1.5, np.arange(3)])] * 3
    serializer.save(flow, path)
    for datapoint in serializer.load(path):
        assert type(datapoint) is kind
        np.testing.assert_equal(datapoint, flow[0])


@pytest.mark.parametrize("dtype", ["bool", "uint8", ">i4", "int64", "float16", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (4, 3, 2)])
def test_arrays_of_any_dtype_and_shape(serializer, path, dtype, shape):
    array = (np.random.default_rng(0).standard_normal(shape) * 5).astype(dtype)
    serializer.save([[array]] * 2, path)
    for (loaded,) in serializer.load(path):
        assert loaded.dtype == array.dtype
        assert loaded.shape == array.shape
        np.testing.assert_array_equal(loaded, array)


def test_a_flow_may_use_its_array_again(serializer, path):
    def reusing():
        array = np.zeros(100)
        for number in range(5):
            array[:] = number
            yield [array]

    serializer.save(reusing(), path)
    assert [array[0] for (array,) in serializer.load(path)] == [0, 1, 2, 3, 4]


def test_shuffled_epochs(serializer, path):
    serializer.save(flow_of(30), path)
    flow = serializer.load(path, shuffle=True, seed=1)
    first, second = numbers(flow), numbers(flow)
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second
    assert numbers(serializer.load(path, shuffle=True, seed=1)) == first


def test_the_shares_of_workers(serializer, path):
    serializer.save(flow_of(20), path)
    flow = serializer.load(path, shuffle=True, seed=1)
    shares = [flow.shard(index, 3) for index in range(3)]
    assert [len(share) for share in shares] == [7, 7, 6]
    assert sorted(number for share in shares for number in numbers(share)) == list(range(20))


def test_a_run_is_resumed_where_it_stood(serializer, path):
    serializer.save(flow_of(20), path)
    position = Position(serializer.load(path, shuffle=True, seed=3))
    numbers(position)
    iterator = iter(position)
    numbers(islice(iterator, 7))
    state = position.state_dict()
    rest = numbers(iterator)
    resumed = Position(serializer.load(path, shuffle=True))
    resumed.load_state_dict(state)
    assert numbers(resumed) == rest
    assert numbers(resumed) == numbers(position)


def test_an_open_flow_can_be_pickled(serializer, path):
    serializer.save(flow_of(5), path)
    flow = serializer.load(path)
    flow.reset_state()
    assert numbers(flow) == numbers(pickle.loads(pickle.dumps(flow))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("serializer", [LMDBSerializer, HDF5Serializer], indirect=True)
def test_it_goes_to_another_process(serializer, path):
    serializer.save(flow_of(5), path)
    flow = serializer.load(path)
    flow.reset_state()
    code = "import pickle, sys; flow = pickle.load(sys.stdin.buffer); flow.reset_state(); print([d[2] for d in flow])"
    run = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(flow), capture_output=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.decode() == f"{[f'No. {number} ä' for number in range(5)]}\n"


def test_two_flows_of_one_file(serializer, path):
    serializer.save(flow_of(5), path)
    one, other = serializer.load(path), serializer.load(path)
    assert [(int(a[1]), int(b[1])) for a, b in zip(one, other, strict=True)] == [(n, n) for n in range(5)]


def test_a_save_that_fails_leaves_nothing(serializer, path, tmp_path):
    def broken():
        yield from flow_of(3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        serializer.save(broken(), path)
    assert os.listdir(tmp_path) == []


def test_until_it_is_complete_nothing_is_at_the_path(serializer, path):
    def watching():
        for datapoint in flow_of(3):
            assert not os.path.exists(path)
            yield datapoint

    serializer.save(watching(), path)
    assert os.path.exists(path)


def test_nothing_is_overwritten(serializer, path):
    serializer.save(flow_of(2), path)
    with pytest.raises(ConfigError, match=r"data exists already; remove it, or save to another path"):
        serializer.save(flow_of(3), path)
    assert len(serializer.load(path)) == 2


def test_a_directory_that_is_missing(serializer, tmp_path):
    with pytest.raises(ConfigError, match=r"there is no directory .*; make it first"):
        serializer.save(flow_of(2), tmp_path / "no" / "data")


def test_a_bar_shows_how_far_it_is(serializer, path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    serializer.save(flow_of(4), path)
    assert "4/4" in capsys.readouterr().err


@pytest.mark.parametrize("keep", [0, 10, 0.3, 0.9, -1])
def test_a_truncated_file_is_an_error(serializer, path, tmp_path, keep):
    serializer.save([[np.random.default_rng(number).random(2000)] for number in range(20)], path)
    content = (tmp_path / "data").read_bytes()
    torn = tmp_path / "torn"
    torn.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    # One that its own library does not miss the end of may be whole.
    with pytest.raises(InputError, match=r"torn.*save it again"):
        list(serializer.load(torn))


@pytest.mark.parametrize("content", [b"x", b"hello, world\n" * 1000, pickle.dumps(list(range(1000)))])
def test_a_foreign_file_is_an_error(serializer, tmp_path, content):
    foreign = tmp_path / "foreign"
    foreign.write_bytes(content)
    with pytest.raises(InputError, match=r"foreign.*is damaged, not written to its end, or not of this format"):
        serializer.load(foreign)


def test_a_file_of_another_serializer_is_an_error(serializer, path):
    other = SERIALIZERS[SERIALIZERS.index(serializer) - 1]
    pytest.importorskip(LIBRARIES[other])
    other.save(flow_of(3), path)
    with pytest.raises(InputError, match="data is damaged, not written to its end, or not of this format"):
        serializer.load(path)


def test_a_missing_file_is_an_error(serializer, path):
    with pytest.raises(InputError, match=r"there is no file .*data"):
        serializer.load(path)


def test_a_file_that_was_replaced_is_an_error(serializer, path):
    serializer.save(flow_of(3), path)
    flow = serializer.load(path)
    os.unlink(path)
    serializer.save(flow_of(4), path)
    with pytest.raises(InputError, match="has 4 datapoints; it had 3"):
        flow.reset_state()


def test_a_missing_library_is_an_error(serializer, path, monkeypatch):
    if serializer is NumpySerializer:
        pytest.skip("NumPy is no extra")
    serializer.save(flow_of(2), path)
    monkeypatch.setitem(sys.modules, LIBRARIES[serializer], None)
    for attempt in (lambda: serializer.load(path), lambda: serializer.save([], path + "2")):
        with pytest.raises(PluginImportError, match=r"Serializer needs \w+, which cannot be .* pip install 'tpk\["):
            attempt()


@pytest.mark.parametrize("serializer", OF_ANY_STRUCTURE, ids=lambda serializer: serializer.__name__, indirect=True)
def test_an_empty_flow(serializer, path):
    serializer.save([], path)
    flow = serializer.load(path)
    assert len(flow) == 0
    assert list(flow) == []


@pytest.mark.parametrize("serializer", OF_COLUMNS, ids=lambda serializer: serializer.__name__, indirect=True)
@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ([], "the flow list has no datapoint"),
        ([5], "datapoint 0 is no list, tuple or dict but int"),
        ([{1: 2}], "the keys of datapoint 0 must be text"),
        ([[1, 2], [1]], r"datapoint 1 \(list\) does not have the components of datapoint 0"),
        ([{"a": 1}, {"b": 1}], r"datapoint 1 \(dict\) does not have the components of datapoint 0"),
        ([[np.zeros(3)], [np.zeros(4)]], r"component '0' of datapoint 1 has dtype float64 and shape \(4,\)"),
        ([[1], [1.5]], "component '0' of datapoint 1 has dtype float64"),
        ([["a"], [1]], "component '0' of datapoint 1 has dtype int64"),
        ([["a\0"]], "text with a null character"),
        ([[b"bytes"]], r"component '0' of datapoint 0 \(bytes\) is no array of numbers"),
        ([[[[1], [2, 3]]]], "component '0' of datapoint 0 is no array"),
    ],
)
def test_what_does_not_fit_into_columns(serializer, path, flow, message):
    with pytest.raises(InputError, match=message):
        serializer.save(flow, path)
    assert not os.path.exists(path)
