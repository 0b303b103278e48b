from __future__ import annotations

import os
import pickle
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
from tpk_lmdb import LMDBSerializer

from tpk.dataflow import Position
from tpk.dataflow.memory import ALIGNMENT
from tpk.errors import ConfigError, InputError


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "data")


def flow_of(count):
    return [[np.full((3, 4), number, np.float32), number, f"No. {number} ä"] for number in range(count)]


def numbers(datapoints):
    return [int(number) for _, number, _ in datapoints]


def test_what_was_saved_is_loaded(path):
    LMDBSerializer.save(flow_of(50), path)
    flow = LMDBSerializer.load(path)
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
def test_the_structure_comes_back(path, kind):
    flow = [{"a": 1.5, "b/c": np.arange(3)}] * 3 if kind is dict else [kind([1.5, np.arange(3)])] * 3
    LMDBSerializer.save(flow, path)
    for datapoint in LMDBSerializer.load(path):
        assert type(datapoint) is kind
        np.testing.assert_equal(datapoint, flow[0])


@pytest.mark.parametrize("dtype", ["bool", "uint8", ">i4", "int64", "float16", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (4, 3, 2)])
def test_arrays_of_any_dtype_and_shape(path, dtype, shape):
    array = (np.random.default_rng(0).standard_normal(shape) * 5).astype(dtype)
    LMDBSerializer.save([[array]] * 2, path)
    for (loaded,) in LMDBSerializer.load(path):
        assert loaded.dtype == array.dtype
        assert loaded.shape == array.shape
        np.testing.assert_array_equal(loaded, array)


def test_a_flow_may_use_its_array_again(path):
    def reusing():
        array = np.zeros(100)
        for number in range(5):
            array[:] = number
            yield [array]

    LMDBSerializer.save(reusing(), path)
    assert [array[0] for (array,) in LMDBSerializer.load(path)] == [0, 1, 2, 3, 4]


def test_shuffled_epochs(path):
    LMDBSerializer.save(flow_of(30), path)
    flow = LMDBSerializer.load(path, shuffle=True, seed=1)
    first, second = numbers(flow), numbers(flow)
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second
    assert numbers(LMDBSerializer.load(path, shuffle=True, seed=1)) == first


def test_the_shares_of_workers(path):
    LMDBSerializer.save(flow_of(20), path)
    flow = LMDBSerializer.load(path, shuffle=True, seed=1)
    shares = [flow.shard(index, 3) for index in range(3)]
    assert [len(share) for share in shares] == [7, 7, 6]
    assert sorted(number for share in shares for number in numbers(share)) == list(range(20))


def test_a_run_is_resumed_where_it_stood(path):
    LMDBSerializer.save(flow_of(20), path)
    position = Position(LMDBSerializer.load(path, shuffle=True, seed=3))
    numbers(position)
    iterator = iter(position)
    numbers(islice(iterator, 7))
    state = position.state_dict()
    rest = numbers(iterator)
    resumed = Position(LMDBSerializer.load(path, shuffle=True))
    resumed.load_state_dict(state)
    assert numbers(resumed) == rest
    assert numbers(resumed) == numbers(position)


def test_an_open_flow_can_be_pickled(path):
    LMDBSerializer.save(flow_of(5), path)
    flow = LMDBSerializer.load(path)
    flow.reset_state()
    assert numbers(flow) == numbers(pickle.loads(pickle.dumps(flow))) == [0, 1, 2, 3, 4]


def test_it_goes_to_another_process(path):
    LMDBSerializer.save(flow_of(5), path)
    flow = LMDBSerializer.load(path)
    flow.reset_state()
    code = "import pickle, sys; flow = pickle.load(sys.stdin.buffer); flow.reset_state(); print([d[2] for d in flow])"
    run = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(flow), capture_output=True, timeout=280)
    assert run.returncode == 0, run.stderr
    assert run.stdout.decode() == f"{[f'No. {number} ä' for number in range(5)]}\n"


def test_two_flows_of_one_file(path):
    LMDBSerializer.save(flow_of(5), path)
    one, other = LMDBSerializer.load(path), LMDBSerializer.load(path)
    assert [(int(a[1]), int(b[1])) for a, b in zip(one, other, strict=True)] == [(n, n) for n in range(5)]


def test_a_save_that_fails_leaves_nothing(path, tmp_path):
    def broken():
        yield from flow_of(3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        LMDBSerializer.save(broken(), path)
    assert os.listdir(tmp_path) == []


def test_until_it_is_complete_nothing_is_at_the_path(path):
    def watching():
        for datapoint in flow_of(3):
            assert not os.path.exists(path)
            yield datapoint

    LMDBSerializer.save(watching(), path)
    assert os.path.exists(path)


def test_nothing_is_overwritten(path):
    LMDBSerializer.save(flow_of(2), path)
    with pytest.raises(ConfigError, match=r"data exists already; remove it, or save to another path"):
        LMDBSerializer.save(flow_of(3), path)
    assert len(LMDBSerializer.load(path)) == 2


def test_a_directory_that_is_missing(tmp_path):
    with pytest.raises(ConfigError, match=r"the directory .* does not exist; make it first"):
        LMDBSerializer.save(flow_of(2), tmp_path / "no" / "data")


def test_a_bar_shows_how_far_it_is(path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    LMDBSerializer.save(flow_of(4), path)
    assert "4/4" in capsys.readouterr().err


@pytest.mark.parametrize("keep", [0, 10, 0.3, 0.9, -1])
def test_a_truncated_file_is_an_error(path, tmp_path, keep):
    LMDBSerializer.save([[np.random.default_rng(number).random(2000)] for number in range(20)], path)
    content = (tmp_path / "data").read_bytes()
    torn = tmp_path / "torn"
    torn.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    # One that its own library does not miss the end of may be whole.
    with pytest.raises(InputError, match=r"torn.*save it again"):
        list(LMDBSerializer.load(torn))


@pytest.mark.parametrize("content", [b"x", b"hello, world\n" * 1000, pickle.dumps(list(range(1000)))])
def test_a_foreign_file_is_an_error(tmp_path, content):
    foreign = tmp_path / "foreign"
    foreign.write_bytes(content)
    with pytest.raises(InputError, match=r"foreign.*is damaged, incomplete, or not of this format"):
        LMDBSerializer.load(foreign)


def test_a_missing_file_is_an_error(path):
    with pytest.raises(InputError, match=r"there is no file .*data"):
        LMDBSerializer.load(path)


def test_a_file_that_was_replaced_is_an_error(path):
    LMDBSerializer.save(flow_of(3), path)
    flow = LMDBSerializer.load(path)
    os.unlink(path)
    LMDBSerializer.save(flow_of(4), path)
    with pytest.raises(InputError, match="has 4 datapoints; it had 3"):
        flow.reset_state()


def test_an_empty_flow(path):
    LMDBSerializer.save([], path)
    flow = LMDBSerializer.load(path)
    assert len(flow) == 0
    assert list(flow) == []
