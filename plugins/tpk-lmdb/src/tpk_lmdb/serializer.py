"""Datapoints in LMDB files, and how a file is written that is complete or absent."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lmdb
from tqdm import tqdm

from tpk.dataflow import DataFlow, DataFromList
from tpk.dataflow.base import check_iterable, flow_length, reset_state
from tpk.durable_files import sync_directory, sync_file
from tpk.errors import ConfigError, InputError
from tpk_lmdb.packer import DatapointPacker

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
