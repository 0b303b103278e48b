from __future__ import annotations

import os
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tpk.errors import ConfigError, PeerError
from tpk.strategies import ProcessGroup
from tpk.strategies.process_group import pack, unpack


class WithAnother(ProcessGroup):
    """The process group of rank 0 with one other process, which sends certain bytes."""

    def __init__(self, theirs):
        super().__init__(0, 2)
        self._theirs = theirs
        self.sent = []

    def gather_bytes(self, data):
        self.sent.append(data)
        return [data, self._theirs]


def test_each_gets_the_values_of_all():
    mine = {"counts": np.arange(3), "name": "a"}
    own, theirs = WithAnother(pack(what="counts", value=(1, b"x"))).gather_object("counts", mine)
    np.testing.assert_equal(own, mine)
    assert theirs == (1, b"x")


class Bomb:
    """Whoever unpickles it makes a directory."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize(
    "theirs", [pickle.dumps(("counts", Bomb())), b"", b"garbage", pack(value=1), pack(what="x")[:-3]]
)
def test_received_data_runs_no_code(theirs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PeerError, match="rank 1 sent data that is not from this version of tpk"):
        WithAnother(theirs).gather_object("counts", 1)
    assert not list(tmp_path.iterdir())


def test_a_process_with_an_invalid_value_tells_the_others():
    ours = WithAnother(pack(what="counts", value=1))
    with pytest.raises(
        ConfigError, match=r"rank 0 cannot send 'counts' to the others: value\['x'\] is not plain data: object"
    ) as failed:
        ours.gather_object("counts", {"x": object()})
    with pytest.raises(PeerError, match=r"rank 1 has failed: ConfigError\(.*rank 0 cannot send") as told:
        WithAnother(ours.sent[0]).gather_object("counts", 1)
    assert repr(failed.value) in str(told.value)


def test_processes_at_different_points_are_an_error():
    with pytest.raises(PeerError, match="rank 0 is at 'counts', rank 1 at 'sums'"):
        WithAnother(pack(what="sums", value=1)).gather_object("counts", 1)


GOOD = pack(x=[np.arange(4), b"abc", "text", ml_dtypes.bfloat16(1)])


def test_packed_values_come_back():
    got = unpack(GOOD)["x"]
    np.testing.assert_equal(got, [np.arange(4), b"abc", "text", ml_dtypes.bfloat16(1)])
    got[0][0] = 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}",
        b"[[],[]]\n",
        b'[[-1],{"x":1}]\n',
        b'[[3,-1],{"x":1}]\nabc',
        b'[[4],{"x":1}]\nabc',
        b'[[],{"x":{"__tpk__":"set"}}]\n',
        b'[[],{"x":{"__tpk__":"bytes","buffer":0}}]\n',
        b'[[8],{"x":{"__tpk__":"ndarray","dtype":"O","shape":[1],"buffer":0}}]\n' + b"\x01" * 8,
        b'[[8],{"x":{"__tpk__":"ndarray","dtype":"<i8","shape":[-1,-1],"buffer":0}}]\n' + b"\x01" * 8,
        b'[[8],{"x":{"__tpk__":"ndarray","dtype":"<i8","shape":[99999999999999],"buffer":0}}]\n' + b"\x01" * 8,
        b'[[8],{"x":{"__tpk__":"ndarray","dtype":"no_such_type","shape":[1],"buffer":0}}]\n' + b"\x01" * 8,
        b"[" * 100_000 + b"\n",
        GOOD + b"x",
        GOOD[:-1],
        pickle.dumps({"what": 1}),
    ],
)
def test_other_bytes_are_an_error(data):
    with pytest.raises(ValueError, match="bytes are not plain data"):
        unpack(data)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_damaged_bytes_are_an_error_or_other_values(place, byte):
    damaged = GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]
    try:
        unpack(damaged)
    except ValueError as error:
        assert "bytes are not plain data" in str(error)
