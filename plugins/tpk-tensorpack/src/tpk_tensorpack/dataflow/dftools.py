"""The functions that wrote data flows to files before 2019, now replaced by `serialize`."""

from __future__ import annotations

from typing import Any

from tpk_tensorpack.dataflow.serialize import LMDBSerializer, TFRecordSerializer
from tpk_tensorpack.missing import not_here

__all__ = ["dump_dataflow_to_lmdb", "dump_dataflow_to_tfrecord"]

__getattr__ = not_here(__name__, {"dump_dataflow_to_process_queue": "MultiProcessRunnerZMQ"})


def dump_dataflow_to_lmdb(df: Any, lmdb_path: str, write_frequency: int = 5000) -> None:
    """Write one pass of a data flow to an LMDB; see `LMDBSerializer.save`."""
    LMDBSerializer.save(df, lmdb_path, write_frequency)


def dump_dataflow_to_tfrecord(df: Any, path: str) -> None:
    """Write one pass of a data flow to a TFRecord file; see `TFRecordSerializer.save`."""
    TFRecordSerializer.save(df, path)
