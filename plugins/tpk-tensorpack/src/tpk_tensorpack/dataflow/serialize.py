"""Files of whole data flows, as tensorpack writes and reads them.

LMDB and TFRecord hold datapoints as `tpk_tensorpack.utils.serialize.dumps` makes them: pickled. A pickle can run any
code, so read your own files only. Files of tensorpack are read here, and those that are written here by tensorpack.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tpk.dataflow.serialize import commit, datapoints_with_progress, written_atomically
from tpk.errors import InputError
from tpk_tensorpack.dataflow.base import DataFlow, RNGDataFlow
from tpk_tensorpack.dataflow.common import FixedSizeData
from tpk_tensorpack.dataflow.format import HDF5Data, LMDBData, LMDBDataDecoder, _library
from tpk_tensorpack.dataflow.raw import DataFromList
from tpk_tensorpack.utils.serialize import dumps, loads

__all__ = ["HDF5Serializer", "LMDBSerializer", "NumpySerializer", "TFRecordSerializer"]

_FIRST_SIZE = 1 << 26


class LMDBSerializer:
    """Writes a data flow to an LMDB file, and reads it.

    Example:
        ```python
        LMDBSerializer.save(flow, "train.lmdb")
        flow = LMDBSerializer.load("train.lmdb", shuffle=True)
        ```
    """

    @staticmethod
    def save(df: Any, path: str, write_frequency: int = 5000) -> None:
        """Write one pass.

        Args:
            df: the data flow.
            path: a file that is not there.
            write_frequency: after how many datapoints they are written to the disk.

        Raises:
            ConfigError: lmdb is not installed, or something is at `path`.
        """
        lmdb = _library("lmdb", "lmdb", "LMDBSerializer")
        with (
            written_atomically(os.fspath(path), "LMDBSerializer") as partial,
            lmdb.open(partial, subdir=False, lock=False, map_size=_FIRST_SIZE, sync=False) as environment,
        ):
            held: list[tuple[bytes, bytes]] = []
            keys: list[bytes] = []
            for datapoint in datapoints_with_progress(df, os.fspath(path), "LMDBSerializer"):
                keys.append(b"%08d" % len(keys))
                held.append((keys[-1], dumps(datapoint)))
                if len(held) >= write_frequency:
                    commit(lmdb, environment, held)
                    held = []
            commit(lmdb, environment, [*held, (b"__keys__", dumps(keys))])
            environment.sync(True)

    @staticmethod
    def load(path: str, shuffle: bool = True) -> LMDBDataDecoder:
        """Return the data flow.

        Args:
            path: what `save` wrote.
            shuffle: whether each pass has an order of its own.

        Raises:
            ConfigError: lmdb is not installed.
            InputError: there is no such file, or it is damaged.
        """
        return LMDBDataDecoder(LMDBData(path, shuffle=shuffle), lambda _, value: loads(value))


class NumpySerializer:
    """Writes a data flow to an ``.npz`` file as a whole, and reads it into memory."""

    @staticmethod
    def save(df: Any, path: str) -> None:
        """Write one pass.

        Args:
            df: the data flow.
            path: a file that is not there.

        Raises:
            ConfigError: something is at `path`.
        """
        points = list(datapoints_with_progress(df, os.fspath(path), "NumpySerializer"))
        buffer = np.empty(len(points), object)
        for number, point in enumerate(points):
            buffer[number] = point
        with written_atomically(os.fspath(path), "NumpySerializer") as partial, open(partial, "wb") as file:
            np.savez_compressed(file, buffer=buffer)

    @staticmethod
    def load(path: str, shuffle: bool = True) -> DataFromList:
        """Return the data flow.

        Args:
            path: what `save` wrote.
            shuffle: whether each pass has an order of its own.

        Raises:
            InputError: there is no such file, or it is damaged.
        """
        try:
            with np.load(path, allow_pickle=True) as file:
                points = file["buffer"].tolist()
        except (OSError, KeyError, ValueError, EOFError, UnpicklingError, BadZipFile) as error:
            raise InputError(f"NumpySerializer: {path} is missing, damaged, or not of this format: {error}") from error
        return DataFromList(points, shuffle=shuffle)


class TFRecordSerializer:
    """Writes a data flow to a TFRecord file, and reads it in that order."""

    @staticmethod
    def save(df: Any, path: str) -> None:
        """Write one pass.

        Args:
            df: the data flow.
            path: a file that is not there.

        Raises:
            ConfigError: something is at `path`.
        """
        import tensorflow as tf

        with (
            written_atomically(os.fspath(path), "TFRecordSerializer") as partial,
            tf.io.TFRecordWriter(partial) as writer,
        ):
            for datapoint in datapoints_with_progress(df, os.fspath(path), "TFRecordSerializer"):
                writer.write(dumps(datapoint))

    @staticmethod
    def load(path: str, size: int | None = None) -> DataFlow:
        """Return the data flow.

        Args:
            path: what `save` wrote.
            size: how many datapoints a pass has; by default those of the file, and no length.

        Raises:
            InputError: there is no such file; or (in the iteration) it is damaged.
        """
        flow = _Records(path)
        return flow if size is None else FixedSizeData(flow, size)


class _Records(DataFlow):
    refills_arrays = False

    def __init__(self, path: str) -> None:
        self.path = os.fspath(path)
        if not os.path.isfile(self.path):
            raise InputError(f"TFRecordSerializer: there is no file {self.path}")

    def __iter__(self) -> Iterator[Any]:
        import tensorflow as tf

        try:
            for record in tf.compat.v1.python_io.tf_record_iterator(self.path):
                yield loads(record)
        except tf.errors.DataLossError as error:
            raise InputError(f"TFRecordSerializer: {self.path} is damaged, or no TFRecord file: {error}") from error


class HDF5Serializer:
    """Writes the components of a data flow to data sets of an HDF5 file, and reads them into memory."""

    @staticmethod
    def save(df: Any, path: str, data_paths: Sequence[str]) -> None:
        """Write one pass.

        Args:
            df: the data flow, whose components have one shape each.
            path: a file that is not there.
            data_paths: the name of a data set for each component.

        Raises:
            ConfigError: h5py is not installed, or something is at `path`.
            InputError: there is no datapoint, or some have another number of components, or do not fit together.
        """
        h5py = _library("h5py", "h5py", "HDF5Serializer")
        points = list(datapoints_with_progress(df, os.fspath(path), "HDF5Serializer"))
        if not points or any(len(point) != len(data_paths) for point in points):
            raise InputError(
                f"HDF5Serializer: expected datapoints of {len(data_paths)} components, as in {data_paths=}"
            )
        with written_atomically(os.fspath(path), "HDF5Serializer") as partial, h5py.File(partial, "w") as file:
            for name, column in zip(data_paths, zip(*points, strict=True), strict=True):
                try:
                    file[name] = np.stack(column)
                except (TypeError, ValueError) as error:
                    raise InputError(f"HDF5Serializer: the values of {name!r} do not fit together: {error}") from error

    @staticmethod
    def load(path: str, data_paths: Sequence[str], shuffle: bool = True) -> RNGDataFlow:
        """Return the data flow.

        Args:
            path: what `save` wrote.
            data_paths: the data sets.
            shuffle: whether each pass has an order of its own.

        Raises:
            ConfigError: h5py is not installed.
            InputError: there is no such file or data set, or it is damaged.
        """
        return HDF5Data(path, data_paths, shuffle=shuffle)
