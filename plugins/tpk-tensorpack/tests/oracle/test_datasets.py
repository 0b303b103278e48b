"""Readers of data sets, with tensorpack and with this package, on the same files."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest
from published import write_all

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")

SCRIPT = Path(__file__).parent / "datasets.py"

# The part of protoc's output for caffe.proto that the mean image needs.
CAFFE_PB2 = """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe")
    message = file.message_type.add(name="BlobProto")
    for number, name in enumerate(["num", "channels", "height", "width"], 1):
        message.field.add(name=name, number=number, type="TYPE_INT32", label="LABEL_OPTIONAL")
    message.field.add(name="data", number=5, type="TYPE_FLOAT", label="LABEL_REPEATED").options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    BlobProto = message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.BlobProto"))
"""


def test_readers_deliver_what_those_of_tensorpack_do(tmp_path, with_tensorpack, with_tpk, monkeypatch):
    data = tmp_path / "data"
    # tensorpack's CIFAR expects the published number of images.
    write_all(data, cifar=10000)
    (data / "caffe").mkdir()
    (data / "caffe/caffe_pb2.py").write_text(textwrap.dedent(CAFFE_PB2))
    monkeypatch.setenv("TENSORPACK_DATASET", str(data))
    with_tensorpack(tmp_path, SCRIPT, "theirs.npz")
    with_tpk(tmp_path, SCRIPT, "ours.npz")
    theirs, ours = np.load(tmp_path / "theirs.npz"), np.load(tmp_path / "ours.npz")
    assert set(ours) == set(theirs)
    for name in theirs:
        assert ours[name].dtype == theirs[name].dtype, name
        if "channels" in name or "mean" in name or "pixels" in name:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
