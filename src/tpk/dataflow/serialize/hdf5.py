"""Flows in HDF5 files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tpk.dataflow.base import DataFlow
from tpk.dataflow.memory import aligned_empty
from tpk.dataflow.serialize.columns import ColumnLayout, Columns
from tpk.dataflow.serialize.files import FileFlow, FileItems, datapoints_with_progress, written_atomically
from tpk.errors import InputError
from tpk.plugin.optional import import_optional

_LAYOUT = "tpk"
_BLOCK_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 18


class HDF5Serializer:
    """Datapoints of one structure in an HDF5 file: each component is one dataset. Needs ``tpk[hdf5]``.

    Arrays and numbers must have one shape and dtype in all datapoints; numbers come back as NumPy's. A component may
    be text, too. Neither writing nor reading holds more than a few datapoints in memory. A checksum of each chunk is
    compared when it is read; of text, HDF5 has none.

    Example:
        ```python
        HDF5Serializer.save(flow, "train.h5", ["image", "label"])
        flow = HDF5Serializer.load("train.h5", ["image", "label"], shuffle=True)
        ```
    """

    @staticmethod
    def save(flow: Iterable[Any], path: str | os.PathLike[str], data_paths: Sequence[str] | None = None) -> None:
        """Write one pass over a flow.

        Args:
            flow: any iterable of lists, tuples or dicts.
            path: a file that does not exist.
            data_paths: where in the file each component goes; of dicts, their keys. By default the keys, or
                ``"0"``, ``"1"``, …

        Raises:
            ConfigError: something is at `path`.
            PluginImportError: h5py is not installed.
            InputError: the flow has no datapoint, or one that does not fit those before.
        """
        owner = "HDF5Serializer"
        h5py = import_optional("h5py", owner, "'tpk[hdf5]'")
        path = os.fspath(path)
        with written_atomically(path, owner) as partial, h5py.File(partial, "w") as file:
            columns = Columns(owner, data_paths)
            held_bytes = 0
            for datapoint in datapoints_with_progress(flow, path, owner):
                held_bytes += columns.add(datapoint)
                if held_bytes >= _BLOCK_BYTES:
                    _append(h5py, file, columns)
                    held_bytes = 0
            _append(h5py, file, columns)
            file.attrs[_LAYOUT] = columns.describe(flow)

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        data_paths: Sequence[str] | None = None,
        shuffle: bool = False,
        seed: int | None = None,
    ) -> DataFlow:
        """Return the flow of a file's datapoints.

        Args:
            path: what `save` wrote, or any HDF5 file with datasets of the same length.
            data_paths: the datasets whose rows make the datapoints, as lists; None takes what `save` wrote, in its
                structure.
            shuffle: whether each epoch has an order of its own.
            seed: see `RNGDataFlow`.

        Raises:
            PluginImportError: h5py is not installed.
            InputError: the file is missing, empty, truncated or foreign, or has no such datasets.
        """
        return FileFlow(_HDF5Items(path, data_paths), shuffle, seed)


class _HDF5Items(FileItems):
    def __init__(self, path: str | os.PathLike[str], data_paths: Sequence[str] | None) -> None:
        self.data_paths = data_paths if data_paths is None else list(data_paths)
        super().__init__(path, "HDF5Serializer")

    def _open(self) -> Any:
        h5py = import_optional("h5py", self.owner, "'tpk[hdf5]'")
        with self.errors_of(OSError):
            file = h5py.File(self.path, "r")
        names = self.data_paths
        length = None
        if _LAYOUT in file.attrs:
            with self.errors_of(ValueError):
                layout, length = ColumnLayout.from_json(file.attrs[_LAYOUT])
        elif names is None:
            raise InputError(
                f"{self.owner}: {self.path} was not written by HDF5Serializer; say with data_paths= which of its "
                f"datasets make the datapoints. It has {_names_of_datasets(h5py, file)}"
            )
        if names is not None:
            layout = ColumnLayout("list", names)
        datasets = []
        for name in layout.names:
            dataset = file.get(name)
            if not isinstance(dataset, h5py.Dataset) or not dataset.shape:
                raise InputError(
                    f"{self.owner}: {self.path} has no dataset {name!r} with rows; it has "
                    f"{_names_of_datasets(h5py, file)}"
                )
            if length is None:
                length = len(dataset)
            if len(dataset) != length:
                raise self.damaged(f"the dataset {name!r} has {len(dataset)} rows, and should have {length}")
            datasets.append(dataset.asstr() if h5py.check_string_dtype(dataset.dtype) else dataset)
        return file, layout, length, datasets

    def _length(self, handle: Any) -> int:
        return int(handle[2])

    def _close(self, handle: Any) -> None:
        handle[0].close()

    def _read(self, handle: Any, index: int) -> Any:
        _, layout, _, datasets = handle
        with self.errors_of(OSError):
            return layout.datapoint([_row(dataset, index) for dataset in datasets])


def _row(dataset: Any, index: int) -> Any:
    shape = getattr(dataset, "shape", ())[1:]
    if not shape:
        return dataset[index]
    row = aligned_empty(shape, dataset.dtype)
    if row.size:
        dataset.read_direct(row, np.s_[index])
    return row


def _append(h5py: Any, file: Any, columns: Columns) -> None:
    for column in columns.all:
        block = column.take()
        if column.name not in file:
            row_bytes = max(1, block[:1].nbytes)
            file.create_dataset(
                column.name,
                (0, *column.shape),
                h5py.string_dtype() if column.is_text else column.dtype,
                maxshape=(None, *(size or None for size in column.shape)),
                chunks=(max(1, _CHUNK_BYTES // row_bytes), *(max(1, size) for size in column.shape)),
                fletcher32=not column.is_text,
            )
        dataset = file[column.name]
        begin = len(dataset)
        dataset.resize(begin + len(block), axis=0)
        dataset[begin:] = block


def _names_of_datasets(h5py: Any, file: Any) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, thing: names.append(name) if isinstance(thing, h5py.Dataset) else None)
    return names
