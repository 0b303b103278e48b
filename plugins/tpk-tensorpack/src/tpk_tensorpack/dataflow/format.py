"""Data flows that read third-party file formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tpk_lmdb import LMDBFile

from tpk.errors import InputError
from tpk_tensorpack.dataflow.base import ProxyDataFlow, RNGDataFlow
from tpk_tensorpack.dataflow.raw import ArrayRows, DataFromList
from tpk_tensorpack.missing import optional_library
from tpk_tensorpack.utils.serialize import loads

__all__ = ["CaffeLMDB", "HDF5Data", "LMDBData", "LMDBDataDecoder", "LMDBDataPoint", "SVMLightData"]

_KEYS = b"__keys__"
"""The key under which `LMDBSerializer` keeps the list of keys."""


class HDF5Data(ArrayRows):
    """Rows of several data sets in an HDF5 file, all read into memory.

    Args:
        filename: the file.
        data_paths: the names of the data sets, such as ``["images", "labels"]``.
        shuffle: whether to shuffle before each pass.

    Raises:
        ImportError: h5py is not installed.
        InputError: the file or a data set is missing, or the data sets have different lengths.
    """

    def __init__(self, filename: str, data_paths: Sequence[str], shuffle: bool = True) -> None:
        h5py = optional_library("h5py", "HDF5Data")
        self.f = filename
        self.data_paths = list(data_paths)
        try:
            with h5py.File(filename, "r") as file:
                self.dps = [file[path][:] for path in self.data_paths]
        except (OSError, KeyError) as error:
            names = ", ".join(self.data_paths)
            raise InputError(f"HDF5Data: {filename} is missing, damaged, or lacks some of {names}: {error}") from error
        super().__init__(self.dps, shuffle)


class LMDBData(RNGDataFlow):
    """Pairs of a key and its value, both bytes, from an LMDB file.

    Args:
        lmdb_path: a directory or a file.
        shuffle: whether to shuffle before each pass; otherwise the order of the file.
        keys: the keys to shuffle: a list, or a format such as ``"{:0>8d}"`` for numbers from 0 on. By default the list
            under ``__keys__``, as written by `LMDBSerializer`, or else all keys in the file. That list is read by
            `tpk_tensorpack.utils.serialize.loads`, so it has to be a file that you trust.

    Raises:
        InputError: the file is missing or damaged, or (when iterating) a key is missing.
    """

    refills_arrays = False

    def __init__(self, lmdb_path: str, shuffle: bool = True, keys: Sequence[str] | str | None = None) -> None:
        self._file = _LMDBPairs(lmdb_path, type(self).__name__)
        self.keys = self._find_keys(keys) if shuffle else None

    def _find_keys(self, keys: Sequence[str] | str | None) -> list[bytes]:
        if isinstance(keys, str):
            return [keys.format(number).encode("ascii") for number in range(len(self))]
        if keys is not None:
            return [key.encode("ascii") if isinstance(key, str) else key for key in keys]
        listed = self._file.value(_KEYS)
        if listed is not None:
            return list(loads(listed))
        return [key for key, _ in self._file.pairs()]

    def reset_state(self) -> None:
        """Open the file in this process and reseed the random numbers."""
        super().reset_state()
        self._file.open()

    def __len__(self) -> int:
        return len(self._file)

    def __iter__(self) -> Iterator[Any]:
        if self.keys is None:
            yield from map(list, self._file.pairs())
            return
        self.rng.shuffle(self.keys)
        for key in self.keys:
            value = self._file.value(key)
            if value is None:
                raise InputError(f"{type(self).__name__}: {self._file.path} has no key {key!r}")
            yield [key, value]


class _LMDBPairs(LMDBFile):
    """A mapping view of an open LMDB file."""

    def value(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None if the key is missing."""
        with self.open().begin() as transaction:
            value: bytes | None = transaction.get(key)
        return value

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over all keys and values in file order, except for the list of keys."""
        with self.open().begin() as transaction:
            for key, value in transaction.cursor():
                if key != _KEYS:
                    yield key, value

    def _length(self, environment: Any) -> int:
        with environment.begin() as transaction:
            return int(transaction.stat()["entries"]) - (transaction.get(_KEYS) is not None)


class LMDBDataDecoder(ProxyDataFlow):
    """The results of a function of the keys and values of an LMDB file.

    Args:
        lmdb_data: an `LMDBData`.
        decoder: takes a key and a value; returns a datapoint, or None to drop it.
    """

    refills_arrays = None

    def __init__(self, lmdb_data: LMDBData, decoder: Callable[[bytes, bytes], Any]) -> None:
        super().__init__(lmdb_data)
        self.decoder = decoder

    def __iter__(self) -> Iterator[Any]:
        for key, value in self.ds:
            datapoint = self.decoder(key, value)
            if datapoint is not None:
                yield datapoint


class LMDBDataPoint(LMDBDataDecoder):
    """The datapoints of an LMDB file written by `LMDBSerializer`, for scripts from before 2019.

    Args:
        lmdb: an `LMDBData`, a flow of its datapoints, or a path.
        args: if `lmdb` is a path, further arguments for `LMDBData`.
        kwargs: likewise.
    """

    def __init__(self, lmdb: Any, *args: Any, **kwargs: Any) -> None:
        is_path = isinstance(lmdb, str | os.PathLike)
        super().__init__(LMDBData(lmdb, *args, **kwargs) if is_path else lmdb, lambda _, value: loads(value))


class CaffeLMDB(LMDBDataDecoder):
    """Images of shape ``[height, width, channels]`` and labels from an LMDB file written by Caffe's tools.

    Args:
        lmdb_path: see `LMDBData`.
        shuffle: see `LMDBData`.
        keys: see `LMDBData`.

    Raises:
        InputError: (when iterating) a value is not a ``caffe.Datum`` with raw bytes; the message names the key.

    Example:
        ```python
        flow = CaffeLMDB("/data/validation", keys="{:0>8d}")
        ```
    """

    def __init__(self, lmdb_path: str, shuffle: bool = True, keys: Sequence[str] | str | None = None) -> None:
        super().__init__(LMDBData(lmdb_path, shuffle, keys), _image_of_datum)


def _image_of_datum(key: bytes, value: bytes) -> Any:
    from tpk_tensorpack.utils.loadcaffe import get_caffe_pb

    pb = get_caffe_pb()
    datum = pb.Datum()
    try:
        datum.ParseFromString(value)
        image = np.frombuffer(datum.data, np.uint8).reshape(datum.channels, datum.height, datum.width)
    except (pb.DecodeError, ValueError) as error:
        raise InputError(
            f"CaffeLMDB: the value of key {key!r} is not a caffe.Datum with the bytes of an image ({error}). Decode "
            "it by LMDBDataDecoder(LMDBData(...), decoder)"
        ) from error
    return [image.transpose(1, 2, 0), datum.label]


class SVMLightData(DataFromList):
    """The rows of a file in SVMlight format, as ``[features, label]``, all read into memory.

    Args:
        filename: the file.
        shuffle: whether to shuffle before each pass.

    Raises:
        ImportError: scikit-learn is not installed.
        InputError: the file is missing or damaged.
    """

    def __init__(self, filename: str, shuffle: bool = True) -> None:
        datasets = optional_library("sklearn.datasets", "SVMLightData")
        try:
            features, labels = datasets.load_svmlight_file(filename)
        except (OSError, ValueError) as error:
            raise InputError(f"SVMLightData: {filename} is missing, damaged, or not of this format: {error}") from error
        super().__init__(list(map(list, zip(features.toarray(), labels, strict=True))), shuffle)
