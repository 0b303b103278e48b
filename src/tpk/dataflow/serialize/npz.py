"""Flows in NumPy's npz files."""

from __future__ import annotations

import os
import pickle
import zipfile
import zlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np

from tpk.dataflow.base import DataFlow
from tpk.dataflow.memory import aligned_copy
from tpk.dataflow.serialize.columns import ColumnLayout, Columns
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
            columns = Columns(owner)
            for datapoint in datapoints_with_progress(flow, path, owner):
                columns.add(datapoint)
            layout = np.array(columns.describe(flow))
            arrays = {f"column_{place}": column.take() for place, column in enumerate(columns.all)}
            text = {name: array.astype(str) for name, array in arrays.items() if array.dtype.hasobject}
            with open(partial, "wb") as file:  # by its name, NumPy would add .npz to it
                np.savez(file, allow_pickle=False, **{**arrays, **text, _LAYOUT: layout})

    @staticmethod
    def load(
        path: str | os.PathLike[str], shuffle: bool = False, seed: int | None = None, *, allow_pickle: bool = False
    ) -> DataFlow:
        """Return the flow of a file's datapoints.

        Args:
            path: what `save` wrote, or a file of tensorpack's `NumpySerializer`.
            shuffle: whether each epoch has an order of its own.
            seed: see `RNGDataFlow`.
            allow_pickle: whether pickled datapoints are read, which tensorpack writes. A pickle can run any code.

        Raises:
            InputError: the file is missing, empty, truncated or foreign.
        """
        return FileFlow(NumpyItems(path, allow_pickle), shuffle, seed)


@attrs.define
class _Content:
    """What is known of a file; the columns are read when they are needed, and then the file is closed."""

    layout: ColumnLayout | None
    length: int
    columns: list[Any] | None = None


class NumpyItems(FileItems):
    """The datapoints of an npz file of this serializer, or of tensorpack's.

    Args:
        path: the file.
        allow_pickle: see `NumpySerializer.load`.
    """

    def __init__(self, path: str | os.PathLike[str], allow_pickle: bool) -> None:
        self.allow_pickle = allow_pickle
        super().__init__(path, "NumpySerializer")

    def _open(self) -> _Content:
        with self._arrays() as arrays:
            if _LAYOUT in arrays.files:
                with self.errors_of(ValueError):
                    return _Content(*ColumnLayout.from_json(str(arrays[_LAYOUT])))
            if _TENSORPACK not in arrays.files:
                raise InputError(
                    f"{self.owner}: {self.path} was not written by NumpySerializer; it has the arrays {arrays.files}. "
                    "Read it with numpy.load, and zip them into a list for DataFromList"
                )
            if not self.allow_pickle:
                raise InputError(
                    f"{self.owner}: {self.path} is pickled, as tensorpack does it, and a pickle can run any code: "
                    "load with allow_pickle=True if you trust the file"
                )
            datapoints = arrays[_TENSORPACK]
            return _Content(None, len(datapoints), [datapoints])

    def _length(self, handle: _Content) -> int:
        return handle.length

    def _read(self, handle: _Content, index: int) -> Any:
        if handle.columns is None and handle.layout is not None:
            with self._arrays() as arrays:
                columns = [arrays[f"column_{place}"] for place in range(len(handle.layout.names))]
            if any(len(column) != handle.length for column in columns):
                raise self.damaged(f"its columns do not have {handle.length} rows each")
            handle.columns = columns
        assert handle.columns is not None
        values = [_own_copy(column[index]) for column in handle.columns]
        return values[0] if handle.layout is None else handle.layout.datapoint(values)

    @contextmanager
    def _arrays(self) -> Generator[Any, None, None]:
        errors = (OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile, zlib.error)
        with open(self.path, "rb") as stream:
            try:
                arrays = np.load(stream, allow_pickle=self.allow_pickle)
                if not isinstance(arrays, np.lib.npyio.NpzFile):
                    raise ValueError("it is no npz file")
                with arrays:
                    yield arrays
            except InputError:
                raise
            except errors as error:
                raise self.damaged(str(error)) from error


def _own_copy(value: Any) -> Any:
    """Return the value so that the next epoch does not see what is done to it; NumPy's text as Python's.

    The datapoints that tensorpack pickled are as they are.
    """
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        return str(value) if isinstance(value, np.str_) else value
    return aligned_copy(value)
