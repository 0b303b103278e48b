"""Data flows with tensorpack and with this package: their datapoints, and their exchange of data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")

SCRIPT = Path(__file__).parent / "flows.py"


def check_alike(theirs, ours):
    theirs, ours = np.load(theirs, allow_pickle=True), np.load(ours, allow_pickle=True)
    assert set(ours) == set(theirs)
    for name in theirs:
        if theirs[name].dtype.kind in "UOS":
            assert ours[name].tolist() == theirs[name].tolist(), name
        else:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
            assert ours[name].dtype == theirs[name].dtype, name


def test_flows_deliver_the_same_from_one_seed(tmp_path, with_tensorpack, with_tpk):
    with_tensorpack(tmp_path, SCRIPT, "flows", "theirs.npz")
    with_tpk(tmp_path, SCRIPT, "flows", "ours.npz")
    check_alike(tmp_path / "theirs.npz", tmp_path / "ours.npz")


def test_each_reads_the_files_of_the_other(tmp_path, with_tensorpack, with_tpk, monkeypatch):
    import lmdb
    from tpk_tensorpack.utils.loadcaffe import get_caffe_pb

    (tmp_path / "points.svm").write_text("1 1:2 3:4\n-1 2:1\n1 1:9\n")
    for shuffle in (False, True):
        with lmdb.open(f"{tmp_path}/caffe-{shuffle}") as caffe, lmdb.open(f"{tmp_path}/raw-{shuffle}") as raw:
            with caffe.begin(write=True) as transaction:
                for number in range(3):
                    datum = get_caffe_pb().Datum(channels=2, height=3, width=4, label=number, data=bytes(range(24)))
                    transaction.put(b"%08d" % number, datum.SerializeToString())
            with raw.begin(write=True) as transaction:
                for key in (b"b", b"aa", b"c"):
                    transaction.put(key, b"" if key == b"c" else key * 3)
    for whose in ("theirs", "ours"):
        (tmp_path / whose).mkdir()
    # The output of protoc for caffe.proto.
    (tmp_path / "caffe").mkdir()
    (tmp_path / "caffe/caffe_pb2.py").write_text(
        "from tpk_tensorpack.utils.loadcaffe import get_caffe_pb\nDatum = get_caffe_pb().Datum\n"
    )
    monkeypatch.setenv("TENSORPACK_DATASET", str(tmp_path))
    with_tensorpack(tmp_path, SCRIPT, "write", "theirs")
    with_tpk(tmp_path, SCRIPT, "write", "ours")
    with_tensorpack(tmp_path, SCRIPT, "read", "ours", "theirs.npz")
    with_tpk(tmp_path, SCRIPT, "read", "theirs", "ours.npz")
    check_alike(tmp_path / "theirs.npz", tmp_path / "ours.npz")


@pytest.mark.parametrize(("sender", "receiver"), [("theirs", "ours"), ("ours", "theirs")])
def test_each_receives_what_the_other_sends(sender, receiver, tmp_path, start, with_tensorpack, with_tpk):
    address = f"ipc://{tmp_path}/socket"
    start(sender, SCRIPT, "send", address)
    (with_tpk if receiver == "ours" else with_tensorpack)(tmp_path, SCRIPT, "receive", address, "received.npz")
    received = np.load(tmp_path / "received.npz")
    for index in range(12):
        assert received[f"{index} array"].tolist() == [index % 6, index % 6 + 1, index % 6 + 2]
        assert received[f"{index} number"] == index % 6
