"""Flows in LMDB files, and datapoints as bytes: msgpack with arrays, which is safe to read."""

from __future__ import annotations

import ast
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
from tqdm import tqdm

from tpk.dataflow import DataFlow, DataFromList, aligned_empty
from tpk.dataflow.base import check_iterable, flow_length, reset_state
from tpk.durable_files import sync_directory, sync_file
from tpk.errors import ConfigError, InputError

_LENGTH_KEY = b"__tpk_length__"
_COMMIT_BYTES = 1 << 24

# LMDB refuses to open a file twice in one process.
_environments: weakref.WeakValueDictionary[tuple[int, int], Any] = weakref.WeakValueDictionary()


class LMDBSerializer:
    """Datapoints of any structure in one LMDB file, under their number.

    The format has no checksums: a flipped bit within an array is read as data.

    Example:
        ```python
        LMDBSerializer.save(flow, "train.lmdb")
        flow = LMDBSerializer.load("train.lmdb", shuffle=True)
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
            InputError: a datapoint holds something that cannot be stored.
        """
        owner = "LMDBSerializer"
        packer = DatapointPacker(owner)
        path = os.fspath(path)
        with (
            written_atomically(path, owner) as partial,
            lmdb.open(partial, subdir=False, lock=False, map_size=1 << 26, sync=False) as environment,
        ):
            held: list[tuple[bytes, bytes]] = []
            held_bytes = count = 0
            for datapoint in datapoints_with_progress(flow, path, owner):
                held.append((_key(count), packer.pack(datapoint, count)))
                held_bytes += len(held[-1][1])
                count += 1
                if held_bytes >= _COMMIT_BYTES:
                    commit(environment, held)
                    held, held_bytes = [], 0
            commit(environment, [*held, (_LENGTH_KEY, str(count).encode())])
            environment.sync(True)

    @staticmethod
    def load(path: str | os.PathLike[str], shuffle: bool = False, seed: int | None = None) -> DataFlow:
        """Return the flow of a file's datapoints.

        Args:
            path: what `save` wrote. The package tpk-tensorpack reads tensorpack's files.
            shuffle: whether to shuffle anew in each epoch.
            seed: see `RNGDataFlow`.

        Raises:
            InputError: the file is missing, empty, truncated or foreign.
        """
        return _LMDBFlow(_LMDBItems(path), shuffle, seed)


class LMDBFile(ABC):
    """Base of the readers of an LMDB, which is opened once in each process, when it is needed.

    Args:
        path: a directory or a single file.
        owner: the name of the reader, for messages.

    Raises:
        InputError: the file is missing, empty, truncated or foreign.
    """

    def __init__(self, path: str | os.PathLike[str], owner: str) -> None:
        self.path = os.fspath(path)
        self.owner = owner
        self._environment: Any = None
        if not os.path.exists(self.path):
            raise InputError(f"{owner}: there is no file {self.path}")
        if os.path.isfile(self.path) and not os.path.getsize(self.path):
            raise InputError(f"{owner}: the file {self.path} is empty, because saving was interrupted; save it again")
        self._size = self._length(self._open())

    def __len__(self) -> int:
        return self._size

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_environment": None}

    def open(self) -> Any:
        """Return the open environment.

        Raises:
            InputError: the file is damaged, or its length has changed.
        """
        if self._environment is None:
            environment = self._open()
            length = self._length(environment)
            if length != self._size:
                raise InputError(f"{self.owner}: {self.path} has {length} datapoints; it had {self._size}")
            self._environment = environment
        return self._environment

    def damaged(self, what: str) -> InputError:
        """Return the error for a damaged file."""
        return InputError(
            f"{self.owner}: {self.path} is damaged, incomplete, or not of this format: {what}; save it again"
        )

    @abstractmethod
    def _length(self, environment: Any) -> int:
        """Return the number of datapoints in the open file."""

    def _open(self) -> Any:
        subdir = os.path.isdir(self.path)
        file = os.path.join(self.path, "data.mdb") if subdir else self.path
        if not os.path.exists(file):
            raise InputError(f"{self.owner}: the directory {self.path} contains no data.mdb, so it is not an LMDB")
        status = os.stat(file)
        identity = status.st_dev, status.st_ino
        environment = _environments.get(identity)
        if environment is None:
            try:
                environment = lmdb.open(self.path, subdir=subdir, readonly=True, lock=False, readahead=False)
            except lmdb.Error as error:
                raise self.damaged(str(error)) from error
            _environments[identity] = environment
        # Reading a page beyond the end of the file would kill the process by a signal.
        needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        if status.st_size < needed:
            raise self.damaged(f"it has {status.st_size} of {needed} bytes")
        return environment


class _LMDBItems(LMDBFile):
    """The datapoints of a file, as a sequence."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, "LMDBSerializer")
        self._packer = DatapointPacker(self.owner)

    def __getitem__(self, index: int) -> Any:
        with self.open().begin(buffers=True) as transaction:
            data = transaction.get(_key(index))
            if data is None:
                raise self.damaged(f"datapoint {index} is not in it")
            return self._packer.unpack(data, f"{self.owner}: datapoint {index} of {self.path}")

    def _length(self, environment: Any) -> int:
        with environment.begin() as transaction:
            length = transaction.get(_LENGTH_KEY)
            if length is not None and length.isdigit():
                return int(length)
        raise self.damaged(
            "the number of its datapoints is missing. If tensorpack wrote it, read it with "
            "tpk_tensorpack.dataflow.LMDBSerializer"
        )


class _LMDBFlow(DataFromList):
    """The flow of a file's datapoints, which is opened in the process that iterates."""

    def __init__(self, items: _LMDBItems, shuffle: bool, seed: int | None) -> None:
        super().__init__(items, shuffle, seed)  # type: ignore[arg-type]  # it has a length and `[]`
        self.refills_arrays = False

    def reset_state(self) -> None:
        """Open the file."""
        self.items.open()


def _key(index: int) -> bytes:
    return b"%08d" % index


def commit(environment: Any, items: list[tuple[bytes, bytes]]) -> None:
    """Write pairs of a key and a value in one transaction; where the file is full, it grows.

    Args:
        environment: the file, open.
        items: the pairs.
    """
    while True:
        try:
            with environment.begin(write=True) as transaction:
                for key, value in items:
                    transaction.put(key, value)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


_ARRAY, _SCALAR, _OBJECTS, _TUPLE = range(1, 5)


class DatapointPacker:
    """Turns datapoints into bytes and back.

    Lists, tuples, dicts, text, bytes, numbers, None, NumPy's arrays and scalars come back as they were. Other objects
    with ``__array__``, such as tensors, come back as arrays. Arrays come back writable and aligned.

    Args:
        owner: the name of the serializer, for messages.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def pack(self, datapoint: Any, index: int) -> bytes:
        """Return the bytes.

        Raises:
            InputError: something in it cannot be stored; the error names the type.
        """
        try:
            return self._pack(datapoint)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"{self._owner}: datapoint {index} of the flow cannot be stored: {error}") from error

    def unpack(self, data: Any, where: str) -> Any:
        """Undo `pack`.

        Args:
            data: a bytes-like object.
            where: which datapoint of which file it is, for messages.

        Raises:
            InputError: these are other bytes.
        """
        try:
            return self._unpack(data)
        except Exception as error:  # msgpack raises errors of many types
            raise InputError(
                f"{where} cannot be read ({type(error).__name__}: {error}); the file is damaged, or was written by "
                "another program"
            ) from error

    def _pack(self, value: Any) -> bytes:
        packed: bytes = msgpack.packb(value, default=self._pack_other, strict_types=True)
        return packed

    def _unpack(self, data: Any) -> Any:
        return msgpack.unpackb(data, ext_hook=self._unpack_other, strict_map_key=False)

    def _pack_other(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return msgpack.ExtType(_TUPLE, self._pack(list(value)))
        if isinstance(value, dict):
            return dict(value)
        if not hasattr(value, "__array__"):
            raise TypeError(
                f"a value of type {type(value).__name__} is not an array, number, text, bytes, list or dict"
            )
        array = np.asarray(value)
        if array.dtype.hasobject:
            flat = array.ravel().tolist()
            if not all(isinstance(element, (str, bytes)) for element in flat):
                raise TypeError("an array of objects can be stored if they are text or bytes, not others")
            return msgpack.ExtType(_OBJECTS, self._pack([array.shape, flat]))
        descr = np.lib.format.dtype_to_descr(array.dtype)
        if np.lib.format.descr_to_dtype(descr) != array.dtype:
            raise TypeError(f"the dtype {array.dtype} is not NumPy's own; convert the array to one that is")
        header = self._pack([repr(descr), list(array.shape)])
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else b""
        code = _SCALAR if isinstance(value, np.generic) else _ARRAY
        return msgpack.ExtType(code, b"".join([len(header).to_bytes(4, "big"), header, memoryview(content)]))

    def _unpack_other(self, code: int, data: bytes) -> Any:
        if code == _TUPLE:
            return tuple(self._unpack(data))
        if code == _OBJECTS:
            shape, flat = self._unpack(data)
            objects = np.empty(len(flat), dtype=object)
            objects[:] = flat
            return objects.reshape(shape)
        if code not in (_ARRAY, _SCALAR):
            raise ValueError(f"it has a part of the unknown type {code}")
        begin = 4 + int.from_bytes(data[:4], "big")
        descr, shape = self._unpack(data[4:begin])
        array = _array(np.lib.format.descr_to_dtype(ast.literal_eval(descr)), shape, data, begin)
        return array[()] if code == _SCALAR else array


def _array(dtype: np.dtype[Any], shape: Any, data: bytes, begin: int) -> np.ndarray[Any, Any]:
    if len(data) - begin != prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(data) - begin} bytes do not fit an array of {dtype} with shape {tuple(shape)}")
    array = aligned_empty(tuple(shape), dtype)
    if array.size:
        array[...] = np.frombuffer(data, dtype, offset=begin).reshape(shape)
    return array


@contextmanager
def written_atomically(path: str, owner: str) -> Generator[str, None, None]:
    """Give a path beside `path` to write to; afterwards the file is synced to the disk and renamed.

    Raises:
        ConfigError: `path` exists already, or its directory does not.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{owner}: {path} exists already; remove it, or save to another path")
    directory, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise ConfigError(f"{owner} cannot write {path}: the directory {directory} does not exist; make it first")
    partial = os.path.join(directory, f".{name}.{os.getpid()}.partial")
    try:
        yield partial
        sync_file(Path(partial))
        os.rename(partial, path)
        sync_directory(Path(directory))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)


def datapoints_with_progress(flow: Iterable[Any], path: str, owner: str) -> Iterator[Any]:
    """Reset a flow and iterate it once, with a progress bar if its length is known."""
    check_iterable(flow, owner)
    reset_state(flow)
    total = flow_length(flow)
    iterator = iter(flow)
    try:
        # With None, tqdm is silent unless it writes to a terminal.
        yield from tqdm(iterator, desc=os.path.basename(path), total=total, disable=None if total else True)
    finally:
        if iterator is not flow and hasattr(iterator, "close"):
            iterator.close()
