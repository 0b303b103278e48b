"""Files of datapoints, which appear when they are complete, and flows that read them at random."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tqdm import tqdm

from tpk.dataflow.base import check_iterable, flow_length, reset_state
from tpk.dataflow.position import close_iterator
from tpk.dataflow.sources import DataFromList
from tpk.errors import ConfigError, InputError


@contextmanager
def written_atomically(path: str, owner: str) -> Generator[str, None, None]:
    """Give a path beside `path` to write to; what is there at the end is synchronized to the disk and renamed.

    Raises:
        ConfigError: there is something at `path`, or no directory for it.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{owner}: {path} exists already; remove it, or save to another path")
    directory, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise ConfigError(f"{owner} cannot write {path}: there is no directory {directory}; make it first")
    partial = os.path.join(directory, f".{name}.{os.getpid()}.partial")
    try:
        yield partial
        _synchronize(partial)
        os.rename(partial, path)
        _synchronize(directory)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)


def _synchronize(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def datapoints_with_progress(flow: Iterable[Any], path: str, owner: str) -> Iterator[Any]:
    """Iterate a flow once, from `reset_state` on; where its length is known, a bar shows how far it is."""
    check_iterable(flow, owner)
    reset_state(flow)
    total = flow_length(flow)
    iterator = iter(flow)
    try:
        # With None, tqdm is silent where there is no terminal.
        yield from tqdm(iterator, desc=os.path.basename(path), total=total, disable=None if total else True)
    finally:
        close_iterator(iterator, flow)


class OpenedFile(ABC):
    """A file of datapoints that is opened when it is needed.

    What `_open` returns, and all that is found with it, is opened anew in another process.

    Args:
        path: the file.
        owner: who reads, for messages.

    Raises:
        InputError: there is no such file, it is empty, or `_length` finds it damaged or foreign.
    """

    def __init__(self, path: str | os.PathLike[str], owner: str) -> None:
        self.path = os.fspath(path)
        self.owner = owner
        self._handle: Any = None
        if not os.path.exists(self.path):
            raise InputError(f"{owner}: there is no file {self.path}")
        if os.path.isfile(self.path) and not os.path.getsize(self.path):
            raise InputError(f"{owner}: the file {self.path} is empty; it was not written to its end, so save it again")
        handle = self._open()
        self._size = self._length(handle)
        self._close(handle)

    def __len__(self) -> int:
        return self._size

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handle": None}

    def open(self) -> None:
        """Open the file if it is not open.

        Raises:
            InputError: it cannot be, or has another length than it had.
        """
        if self._handle is None:
            handle = self._open()
            length = self._length(handle)
            if length != self._size:
                self._close(handle)
                raise InputError(f"{self.owner}: {self.path} has {length} datapoints; it had {self._size}")
            self._handle = handle

    @contextmanager
    def errors_of(self, *errors: type[Exception]) -> Generator[None, None, None]:
        """Turn errors of the library that owns the format into one that names the file."""
        try:
            yield
        except errors as error:
            raise self.damaged(str(error)) from error

    def damaged(self, what: str) -> InputError:
        """Return the error for a file that is not what it should be."""
        return InputError(
            f"{self.owner}: {self.path} is damaged, not written to its end, or not of this format: {what}; "
            "save it again"
        )

    @abstractmethod
    def _open(self) -> Any:
        """Return the open file."""

    @abstractmethod
    def _length(self, handle: Any) -> int:
        """Return how many datapoints are in the open file."""

    def _close(self, handle: Any) -> None:  # noqa: B027 - most close when nobody refers to them any more
        """Close the file."""


class FileItems(OpenedFile):
    """The datapoints of a file, as a sequence that is read when it is asked; see `OpenedFile`."""

    def __getitem__(self, index: int) -> Any:
        if self._handle is None:
            self.open()
        return self._read(self._handle, index)

    @abstractmethod
    def _read(self, handle: Any, index: int) -> Any:
        """Return a datapoint."""


class FileFlow(DataFromList):
    """The flow of a file's datapoints, which is opened in the process that iterates.

    Args:
        items: the datapoints.
        shuffle: whether each epoch has an order of its own.
        seed: see `RNGDataFlow`.
    """

    def __init__(self, items: FileItems, shuffle: bool, seed: int | None) -> None:
        super().__init__(items, shuffle, seed)  # type: ignore[arg-type]  # it has a length and `[]`
        self.refills_arrays = False

    def reset_state(self) -> None:
        """Open the file."""
        self.items.open()
