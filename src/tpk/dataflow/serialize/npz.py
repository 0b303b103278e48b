"""Flows in NumPy's npz files."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from tpk.dataflow.base import DataFlow
from tpk.dataflow.memory import aligned_empty
from tpk.dataflow.serialize.columns import Column, ColumnLayout
from tpk.dataflow.serialize.files import FileFlow, FileItems, datapoints_with_progress, written_atomically
from tpk.errors import InputError

_LAYOUT = "__tpk__"
_TENSORPACK = "buffer"


class NumpySerializer:
    """Datapoints of one structure in an npz file, for what fits into memory: each component is one array.

    Arrays and numbers must have one shape and dtype in all datapoints; numbers come back as NumPy's. A component may
    be text, too. `numpy.load` reads the file as well.

    Example:
        ```python
        NumpySerializer.save(flow, "validation.npz")
        flow = NumpySerializer.load("validation.npz")
        ```
    """

    @staticmethod
    def save(flow: Iterable[Any], path: str | os.PathLike[str]) -> None:
        """Write one pass over a flow.

        Args:
            flow: any iterable of lists, tuples or dicts.
            path: a file that does not exist.

        Raises:
            ConfigError: something is at `path`.
            InputError: the flow has no datapoint, or one that does not fit those before.
        """
        owner = "NumpySerializer"
        path = os.fspath(path)
        with written_atomically(path, owner) as partial:
            layout = None
            columns: list[Column] = []
            count = 0
            for datapoint in datapoints_with_progress(flow, path, owner):
                if layout is None:
                    layout = ColumnLayout.of(datapoint, owner)
                    columns = [Column(name, owner) for name in layout.names]
                for column, value in zip(columns, layout.values(datapoint, count, owner), strict=True):
                    column.add(value, count)
                count += 1
            if layout is None:
                raise InputError(f"{owner}: the flow {type(flow).__name__} has no datapoint, so nothing was saved")
            arrays = {f"column_{place}": column.take() for place, column in enumerate(columns)}
            text = {name: array.astype(str) for name, array in arrays.items() if array.dtype.hasobject}
            with open(partial, "wb") as file:  # by its name, NumPy would add .npz to it
                np.savez(file, **{**arrays, **text, _LAYOUT: np.array(layout.to_json(count))})

    @staticmethod
    def load(
        path: str | os.PathLike[str], shuffle: bool = False, seed: int | None = None, *, allow_pickle: bool = False
    ) -> DataFlow:
        """Return the flow of a file's datapoints.

        Args:
            path: what `save` wrote, or a file of tensorpack's `NumpySerializer`.
            shuffle: whether each epoch has an order of its own.
            seed: see [`RNGDataFlow`][tpk.dataflow.RNGDataFlow].
            allow_pickle: whether pickled datapoints are read, which tensorpack writes. A pickle can run any code.

        Raises:
            InputError: the file is missing, empty, truncated or foreign.
        """
        return FileFlow(_NumpyItems(path, allow_pickle), shuffle, seed)


class _NumpyItems(FileItems):
    def __init__(self, path: str | os.PathLike[str], allow_pickle: bool) -> None:
        self.allow_pickle = allow_pickle
        self._columns: list[Any] | None = None
        super().__init__(path, "NumpySerializer")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_columns": None}

    def _open(self) -> Any:
        with self.errors_of(OSError, ValueError, EOFError, zipfile.BadZipFile):
            file = np.load(self.path, allow_pickle=self.allow_pickle)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise self.damaged("it is no npz file")
        if _TENSORPACK in file.files and _LAYOUT not in file.files:
            if not self.allow_pickle:
                raise InputError(
                    f"{self.owner}: {self.path} is pickled, as tensorpack does it, and a pickle can run any code: "
                    "load with allow_pickle=True if you trust the file"
                )
            return file, None, len(self._content(file, _TENSORPACK))
        if _LAYOUT not in file.files:
            raise InputError(
                f"{self.owner}: {self.path} was not written by NumpySerializer; it has the arrays {file.files}. "
                "Read it with numpy.load, and zip them into a list for DataFromList"
            )
        with self.errors_of(ValueError):
            return file, *ColumnLayout.from_json(str(self._content(file, _LAYOUT)))

    def _length(self, handle: Any) -> int:
        return int(handle[2])

    def _close(self, handle: Any) -> None:
        handle[0].close()

    def _read(self, handle: Any, index: int) -> Any:
        file, layout, length = handle
        if self._columns is None:
            names = [_TENSORPACK] if layout is None else [f"column_{place}" for place in range(len(layout.names))]
            columns = [self._content(file, name) for name in names]
            if any(len(column) != length for column in columns):
                raise self.damaged(f"its columns do not have {length} rows each")
            self._columns = columns
            file.close()
        if layout is None:
            return self._columns[0][index]
        return layout.datapoint([_own_copy(column[index]) for column in self._columns])

    def _content(self, file: Any, name: str) -> Any:
        with self.errors_of(OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
            return file[name]


def _own_copy(value: Any) -> Any:
    """Return the value so that the next epoch does not see what is done to it; NumPy's text as Python's."""
    if not isinstance(value, np.ndarray):
        return str(value) if isinstance(value, np.str_) else value
    copy = aligned_empty(value.shape, value.dtype)
    copy[...] = value
    return copy
