"""Write whole data flows to files, and read them, in tensorpack's formats.

LMDB and TFRecord hold datapoints as pickled by `tpk_tensorpack.utils.serialize.dumps`. A pickle can run any code, so
read only files that you trust. The files are compatible with tensorpack in both directions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

import lmdb
import numpy as np
from tpk_lmdb import commit, datapoints_with_progress, written_atomically

from tpk.errors import InputError
from tpk_tensorpack.dataflow.base import DataFlow, RNGDataFlow
from tpk_tensorpack.dataflow.common import FixedSizeData
from tpk_tensorpack.dataflow.format import HDF5Data, LMDBData, LMDBDataDecoder
from tpk_tensorpack.dataflow.raw import DataFromList
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.missing import optional_library
from tpk_tensorpack.utils.serialize import dumps, loads

__all__ = ["HDF5Serializer", "LMDBSerializer", "NumpySerializer", "TFRecordSerializer"]

_FIRST_SIZE = 1 << 26


class LMDBSerializer:
    """Writes a data flow to an LMDB file and reads it.

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
            path: a new file.
            write_frequency: the number of datapoints between two writes to disk.

        Raises:
            ConfigError: `path` exists.
        """
        with (
            written_atomically(path, "LMDBSerializer") as partial,
            lmdb.open(partial, subdir=False, lock=False, map_size=_FIRST_SIZE, sync=False) as environment,
        ):
            held: list[tuple[bytes, bytes]] = []
            keys: list[bytes] = []
            for datapoint in datapoints_with_progress(df, path, "LMDBSerializer"):
                keys.append(b"%08d" % len(keys))
                held.append((keys[-1], dumps(datapoint)))
                if len(held) >= write_frequency:
                    commit(environment, held)
                    held = []
            commit(environment, [*held, (b"__keys__", dumps(keys))])
            environment.sync(True)

    @staticmethod
    def load(path: str, shuffle: bool = True) -> LMDBDataDecoder:
        """Return the data flow.

        Args:
            path: a file written by `save`.
            shuffle: whether to shuffle before each pass.

        Raises:
            InputError: the file is missing or damaged.
        """
        return LMDBDataDecoder(LMDBData(path, shuffle=shuffle), lambda _, value: loads(value))


class NumpySerializer:
    """Writes a whole data flow to an ``.npz`` file and reads it into memory."""

    @staticmethod
    def save(df: Any, path: str) -> None:
        """Write one pass.

        Args:
            df: the data flow.
            path: a new file.

        Raises:
            ConfigError: `path` exists.
        """
        buffer = np.fromiter(datapoints_with_progress(df, path, "NumpySerializer"), object)
        with written_atomically(path, "NumpySerializer") as partial, open(partial, "wb") as file:
            np.savez_compressed(file, buffer=buffer)

    @staticmethod
    def load(path: str, shuffle: bool = True) -> DataFromList:
        """Return the data flow.

        Args:
            path: a file written by `save`.
            shuffle: whether to shuffle before each pass.

        Raises:
            InputError: the file is missing or damaged.
        """
        try:
            with np.load(path, allow_pickle=True) as file:
                points = file["buffer"].tolist()
        except (OSError, KeyError, ValueError, EOFError, UnpicklingError, BadZipFile) as error:
            raise InputError(f"NumpySerializer: {path} is missing, damaged, or not of this format: {error}") from error
        return DataFromList(points, shuffle=shuffle)


class TFRecordSerializer:
    """Writes a data flow to a TFRecord file and reads it in the same order."""

    @staticmethod
    def save(df: Any, path: str) -> None:
        """Write one pass.

        Args:
            df: the data flow.
            path: a new file.

        Raises:
            ConfigError: `path` exists.
        """
        import tensorflow as tf

        with written_atomically(path, "TFRecordSerializer") as partial, tf.io.TFRecordWriter(partial) as writer:
            for datapoint in datapoints_with_progress(df, path, "TFRecordSerializer"):
                writer.write(dumps(datapoint))

    @staticmethod
    def load(path: str, size: int | None = None) -> DataFlow:
        """Return the data flow.

        Args:
            path: a file written by `save`.
            size: the number of datapoints in a pass; by default all in the file, without a length.

        Raises:
            InputError: the file is missing, or (when iterating) damaged.
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
    """Writes the components of a data flow to the data sets of an HDF5 file and reads them into memory."""

    @staticmethod
    def save(df: Any, path: str, data_paths: Sequence[str]) -> None:
        """Write one pass.

        Args:
            df: the data flow; each of its components has a fixed shape.
            path: a new file.
            data_paths: the name of the data set for each component.

        Raises:
            ImportError: h5py is not installed.
            ConfigError: `path` exists.
            InputError: the data flow is empty, or some datapoints have a different number of components or do not fit
                together.
        """
        h5py = optional_library("h5py", "HDF5Serializer")
        points = list(datapoints_with_progress(df, path, "HDF5Serializer"))
        if not points or any(len(point) != len(data_paths) for point in points):
            raise CheckError(
                f"HDF5Serializer: expected datapoints of {len(data_paths)} components, as in {data_paths=}"
            )
        with written_atomically(path, "HDF5Serializer") as partial, h5py.File(partial, "w") as file:
            for name, column in zip(data_paths, zip(*points, strict=True), strict=True):
                try:
                    file[name] = np.stack(column)
                except (TypeError, ValueError) as error:
                    raise InputError(f"HDF5Serializer: the values of {name!r} do not fit together: {error}") from error

    @staticmethod
    def load(path: str, data_paths: Sequence[str], shuffle: bool = True) -> RNGDataFlow:
        """Return the data flow.

        Args:
            path: a file written by `save`.
            data_paths: the data sets.
            shuffle: whether to shuffle before each pass.

        Raises:
            ImportError: h5py is not installed.
            InputError: the file or a data set is missing, or the file is damaged.
        """
        return HDF5Data(path, data_paths, shuffle=shuffle)
