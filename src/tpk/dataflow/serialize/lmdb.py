"""Flows in LMDB files."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Any

from tpk.dataflow.base import DataFlow
from tpk.dataflow.serialize.files import (
    FileFlow,
    FileItems,
    OpenedFile,
    datapoints_with_progress,
    written_atomically,
)
from tpk.dataflow.serialize.packing import DatapointPacker
from tpk.errors import InputError
from tpk.plugin.creation import import_optional

_LENGTH_KEY = b"__tpk_length__"
_TENSORPACK_KEYS = b"__keys__"
_COMMIT_BYTES = 1 << 24

# LMDB refuses to open a file twice in one process.
_environments: weakref.WeakValueDictionary[tuple[int, int], Any] = weakref.WeakValueDictionary()


class LMDBSerializer:
    """Datapoints of any structure in one LMDB file, under their number. Needs ``tpk[serialize]``.

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
            PluginImportError: lmdb or msgpack is not installed.
            InputError: a datapoint holds something that cannot be stored.
        """
        owner = "LMDBSerializer"
        lmdb = import_optional("lmdb", owner, "'tpk[serialize]'")
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
                    commit(lmdb, environment, held)
                    held, held_bytes = [], 0
            commit(lmdb, environment, [*held, (_LENGTH_KEY, str(count).encode())])
            environment.sync(True)

    @staticmethod
    def load(
        path: str | os.PathLike[str], shuffle: bool = False, seed: int | None = None, *, allow_pickle: bool = False
    ) -> DataFlow:
        """Return the flow of a file's datapoints.

        Args:
            path: what `save` wrote, or an LMDB file or directory of tensorpack's `LMDBSerializer`.
            shuffle: whether each epoch has an order of its own.
            seed: see `RNGDataFlow`.
            allow_pickle: whether pickled datapoints are read, which tensorpack writes. A pickle can run any code.

        Raises:
            PluginImportError: lmdb or msgpack is not installed.
            InputError: the file is missing, empty, truncated or foreign.
        """
        return FileFlow(_LMDBItems(path, allow_pickle), shuffle, seed)


class LMDBFile(OpenedFile):
    """Base of what reads an LMDB, a directory or a single file: opens it, once in each process."""

    def environment(self) -> Any:
        """Return the open environment.

        Raises:
            PluginImportError: lmdb is not installed.
            InputError: the file is truncated or foreign.
        """
        lmdb = import_optional("lmdb", self.owner, "'tpk[serialize]'")
        subdir = os.path.isdir(self.path)
        file = os.path.join(self.path, "data.mdb") if subdir else self.path
        if not os.path.exists(file):
            raise InputError(f"{self.owner}: the directory {self.path} holds no data.mdb, so it is no LMDB")
        status = os.stat(file)
        identity = status.st_dev, status.st_ino
        environment = _environments.get(identity)
        if environment is None:
            with self.errors_of(lmdb.Error):
                environment = lmdb.open(self.path, subdir=subdir, readonly=True, lock=False, readahead=False)
            _environments[identity] = environment
        # A page behind the end of the file would not be an error but a signal that kills the process.
        needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        if status.st_size < needed:
            raise self.damaged(f"it has {status.st_size} of {needed} bytes")
        return environment


class _LMDBItems(LMDBFile, FileItems):
    def __init__(self, path: str | os.PathLike[str], allow_pickle: bool) -> None:
        self.allow_pickle = allow_pickle
        super().__init__(path, "LMDBSerializer")

    def _open(self) -> Any:
        return self.environment(), DatapointPacker(self.owner, self.allow_pickle)

    def _length(self, handle: Any) -> int:
        environment, _ = handle
        with environment.begin() as transaction:
            length = transaction.get(_LENGTH_KEY)
            if length is not None and length.isdigit():
                return int(length)
            if transaction.get(_TENSORPACK_KEYS) is not None:
                return int(environment.stat()["entries"]) - 1
        raise self.damaged("it does not say how many datapoints it has")

    def _read(self, handle: Any, index: int) -> Any:
        environment, packer = handle
        with environment.begin(buffers=True) as transaction:
            data = transaction.get(_key(index))
            if data is None:
                raise self.damaged(f"datapoint {index} is not in it")
            return packer.unpack(data, f"{self.owner}: datapoint {index} of {self.path}")


def _key(index: int) -> bytes:
    return b"%08d" % index


def commit(lmdb: Any, environment: Any, items: list[tuple[bytes, bytes]]) -> None:
    """Write pairs of a key and a value in one transaction; where the file is full, it grows.

    Args:
        lmdb: the library.
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
