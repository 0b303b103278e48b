"""Flows in LMDB files."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from tpk.dataflow.base import DataFlow
from tpk.dataflow.serialize.files import datapoints_with_progress, written_atomically
from tpk.dataflow.serialize.packing import DatapointPacker
from tpk.dataflow.sources import DataFromList
from tpk.errors import InputError
from tpk.plugin.creation import import_optional

_LENGTH_KEY = b"__tpk_length__"
_TENSORPACK_KEYS = b"__keys__"
_COMMIT_BYTES = 1 << 24

# LMDB refuses to open a file twice in one process.
_environments: weakref.WeakValueDictionary[tuple[int, int], Any] = weakref.WeakValueDictionary()


class LMDBSerializer:
    """Datapoints of any structure in one LMDB file, under their number. Needs ``tpk-train[serialize]``.

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
        lmdb = import_optional("lmdb", owner, "'tpk-train[serialize]'")
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
            shuffle: whether to shuffle anew in each epoch.
            seed: see `RNGDataFlow`.
            allow_pickle: whether pickled datapoints are read, which tensorpack writes. A pickle can run any code.

        Raises:
            PluginImportError: lmdb or msgpack is not installed.
            InputError: the file is missing, empty, truncated or foreign.
        """
        return _LMDBFlow(_LMDBItems(path, allow_pickle), shuffle, seed)


class LMDBFile(ABC):
    """Base of the readers of an LMDB, which is opened once in each process, when it is needed.

    Args:
        path: a directory or a single file.
        owner: the name of the reader, for messages.

    Raises:
        PluginImportError: lmdb is not installed.
        InputError: the file is missing, empty, truncated or foreign.
    """

    def __init__(self, path: str | os.PathLike[str], owner: str) -> None:
        self.path = os.fspath(path)
        self.owner = owner
        self._environment: Any = None
        if not os.path.exists(self.path):
            raise InputError(f"{owner}: there is no file {self.path}")
        if os.path.isfile(self.path) and not os.path.getsize(self.path):
            raise InputError(f"{owner}: the file {self.path} is empty; it was not written to its end, so save it again")
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
            f"{self.owner}: {self.path} is damaged, not written to its end, or not of this format: {what}; "
            "save it again"
        )

    @abstractmethod
    def _length(self, environment: Any) -> int:
        """Return the number of datapoints in the open file."""

    def _open(self) -> Any:
        lmdb = import_optional("lmdb", self.owner, "'tpk-train[serialize]'")
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

    def __init__(self, path: str | os.PathLike[str], allow_pickle: bool) -> None:
        super().__init__(path, "LMDBSerializer")
        self._packer = DatapointPacker(self.owner, allow_pickle)

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
            if transaction.get(_TENSORPACK_KEYS) is not None:
                return int(environment.stat()["entries"]) - 1
        raise self.damaged("it does not say how many datapoints it has")


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
