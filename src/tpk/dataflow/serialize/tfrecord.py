"""Flows in TFRecord files."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from tpk.dataflow.base import DataFlow
from tpk.dataflow.serialize.files import FileFlow, FileItems, datapoints_with_progress, written_atomically
from tpk.dataflow.serialize.packing import DatapointPacker

# The last record of a file: a mark, how many datapoints there are, where the record with their offsets begins.
_FOOTER = struct.Struct("<16sQQ")
_MARK = b"tpk TFRecord end"
# Of each record: its length, a checksum of that; behind it a checksum of the content.
_BEFORE_RECORD, _AFTER_RECORD = 12, 4


class TFRecordSerializer:
    """Datapoints of any structure in one TFRecord file, through TensorFlow. Needs ``tpk[serialize]``.

    Behind the datapoints stand two more records: where each datapoint begins, and how many there are. So the file can
    be read at random, and one that lacks its end is found out. TensorFlow checks the checksums of what is read.

    Example:
        ```python
        TFRecordSerializer.save(flow, "train.tfrecord")
        flow = TFRecordSerializer.load("train.tfrecord")
        ```
    """

    @staticmethod
    def save(flow: Iterable[Any], path: str | os.PathLike[str]) -> None:
        """Write one pass over a flow.

        Args:
            flow: any iterable of datapoints: lists, tuples, dicts of arrays, numbers, text, bytes.
            path: a file that does not exist.

        Raises:
            ConfigError: something is at `path`.
            PluginImportError: msgpack is not installed.
            InputError: a datapoint holds something that cannot be stored.
        """
        import tensorflow as tf

        owner = "TFRecordSerializer"
        packer = DatapointPacker(owner)
        path = os.fspath(path)
        offsets = [0]
        with written_atomically(path, owner) as partial, tf.io.TFRecordWriter(partial) as writer:
            for index, datapoint in enumerate(datapoints_with_progress(flow, path, owner)):
                record = packer.pack(datapoint, index)
                writer.write(record)
                offsets.append(offsets[-1] + _BEFORE_RECORD + len(record) + _AFTER_RECORD)
            begin_of_index = offsets.pop()
            writer.write(np.array(offsets, "<u8").tobytes())
            writer.write(_FOOTER.pack(_MARK, len(offsets), begin_of_index))
            # Closed before it is synchronized to the disk; closing it twice does no harm.
            writer.close()

    @staticmethod
    def load(
        path: str | os.PathLike[str], shuffle: bool = False, seed: int | None = None, *, allow_pickle: bool = False
    ) -> DataFlow:
        """Return the flow of a file's datapoints.

        Args:
            path: what `save` wrote, or a file of tensorpack's `TFRecordSerializer`, which is read through once to
                learn where its datapoints are.
            shuffle: whether each epoch has an order of its own.
            seed: see `RNGDataFlow`.
            allow_pickle: whether pickled datapoints are read, which tensorpack writes. A pickle can run any code.

        Raises:
            PluginImportError: msgpack is not installed.
            InputError: the file is missing, empty, truncated or foreign.
        """
        return FileFlow(_TFRecordItems(path, allow_pickle), shuffle, seed)


class _TFRecordItems(FileItems):
    def __init__(self, path: str | os.PathLike[str], allow_pickle: bool) -> None:
        self.allow_pickle = allow_pickle
        super().__init__(path, "TFRecordSerializer")

    def _open(self) -> Any:
        import tensorflow as tf

        # The public readers read from the beginning on, or in eager mode.
        from tpk.tf_internals import tf_record_reader

        packer = DatapointPacker(self.owner, self.allow_pickle)
        with self.errors_of(tf.errors.OpError):
            reader = tf_record_reader(self.path)
            return reader, self._offsets(reader, tf.errors.OutOfRangeError), packer, tf.errors

    def _offsets(self, reader: Any, end_of_file: type[Exception]) -> list[int]:
        size = os.path.getsize(self.path)
        footer_offset = size - _BEFORE_RECORD - _FOOTER.size - _AFTER_RECORD
        with open(self.path, "rb") as file:
            file.seek(max(footer_offset, 0) + _BEFORE_RECORD)
            if file.read(len(_MARK)) == _MARK:
                footer, _ = reader.read(footer_offset)
                _, count, begin_of_index = _FOOTER.unpack(footer)
                offsets = np.frombuffer(reader.read(begin_of_index)[0], "<u8").tolist()
                if len(offsets) != count:
                    raise self.damaged(f"it knows where {len(offsets)} of its {count} datapoints are")
                return offsets
        if not self.allow_pickle:
            raise self.damaged(
                "its last record is not the one that ends a file; if tensorpack wrote it, and you trust it, "
                "load it with allow_pickle=True"
            )
        offsets = [0]
        try:
            while True:
                offsets.append(reader.read(offsets[-1])[1])
        except (end_of_file, IndexError):
            return offsets[:-1]

    def _length(self, handle: Any) -> int:
        return len(handle[1])

    def _read(self, handle: Any, index: int) -> Any:
        reader, offsets, packer, errors = handle
        with self.errors_of(errors.OpError):
            record, _ = reader.read(offsets[index])
        return packer.unpack(record, f"{self.owner}: datapoint {index} of {self.path}")
