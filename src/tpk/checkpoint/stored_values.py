"""Arrays by name, from a dictionary or a file, from which variables can be restored. Needs no TensorFlow."""

from __future__ import annotations

import abc
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from tpk.errors import CheckpointError

STORED_BFLOAT16 = np.dtype("V2")
"""The dtype under which `numpy.save` stores bfloat16, which NumPy lacks. No other dtype of variables is stored so."""

_SUFFIX = ".npy"
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_READ_ERRORS = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, NotImplementedError)


@attrs.frozen
class ValueSpec:
    """The shape and dtype of a stored value, known before it is read.

    Attributes:
        shape: the shape.
        dtype: the NumPy dtype; `object` for strings of any length.
        is_literal: whether the value was given as plain Python numbers, whose dtype is only NumPy's default.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_literal: bool = False

    @property
    def dtype_name(self) -> str:
        """TensorFlow's name of the dtype, such as ``bfloat16`` or ``string``."""
        if self.dtype.kind in "OSU":
            return "string"
        return "bfloat16" if self.dtype == STORED_BFLOAT16 else self.dtype.name

    @property
    def num_bytes(self) -> int | None:
        """The size in bytes; None for strings of any length."""
        if self.dtype == object:
            return None
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class StoredValues(Mapping[str, Any]):
    """A mapping of names to arrays, each of which is read only when it is used.

    Args:
        source: the name of the file or dictionary, for messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    @abc.abstractmethod
    def spec(self, name: str) -> ValueSpec:
        """Return the shape and dtype of the value called `name`, without reading the value.

        Raises:
            KeyError: if the name is unknown.
            CheckpointError: if the file is damaged.
        """


class DictValues(StoredValues):
    """Arrays in memory.

    Args:
        values: arrays or array-like values by name, with or without ``:0``.
        source: their origin, for messages.

    Raises:
        CheckpointError: if a name is not a string, or two names differ only in ``:0``.
    """

    def __init__(self, values: Mapping[str, Any], source: str = "the dictionary") -> None:
        super().__init__(source)
        self._values: dict[str, np.ndarray[Any, Any]] = {}
        self._specs: dict[str, ValueSpec] = {}
        for key, value in values.items():
            if not isinstance(key, str):
                raise CheckpointError(
                    f"{source} has a key {key!r}, a {type(key).__name__}; expected the name of a variable, a str."
                )
            name = key.removesuffix(":0")
            if name in self._values:
                raise CheckpointError(f"{source} has both {name!r} and {name + ':0'!r}. Leave one of them out.")
            array = np.asarray(value)
            self._values[name] = array
            self._specs[name] = ValueSpec(array.shape, array.dtype, is_literal=not hasattr(value, "dtype"))

    def spec(self, name: str) -> ValueSpec:
        """Return the shape and dtype of the value called `name`."""
        return self._specs[name]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class NpzReader(StoredValues):
    """The arrays of an ``.npz`` file by name; a context manager that closes the file.

    Args:
        path: the file, written by `numpy.savez`, `numpy.savez_compressed` or ``tpk checkpoint to-npz``.

    Raises:
        CheckpointError: if the file is missing, damaged, or not an ``.npz`` file.

    Example:
        ```python
        with NpzReader("weights.npz") as values:
            print(values.spec("conv0/W").shape)
        ```
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(path))
        if not os.path.isfile(path):
            raise CheckpointError(f"there is no file {self.source!r}. Give the path of an .npz file.")
        try:
            self._file = zipfile.ZipFile(path)
        except _READ_ERRORS as error:
            raise self._damage("the file is damaged, or not an .npz file", error) from error
        members = [member for member in self._file.infolist() if member.filename.endswith(_SUFFIX)]
        # As in any zip file, a later member replaces an earlier one with the same name.
        self._members = {member.filename.removesuffix(_SUFFIX).removesuffix(":0"): member for member in members}

    def __enter__(self) -> NpzReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def spec(self, name: str) -> ValueSpec:
        """Return the shape and dtype of the array called `name`; only its header is read."""
        member = self._members[name]
        try:
            with self._file.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                if version not in _HEADER_READERS:
                    raise ValueError(f"unknown .npy format {version}")
                shape, _, dtype = _HEADER_READERS[version](stream)
                header_size = stream.tell()
        except _READ_ERRORS as error:
            raise self._damage(f"the array {name!r} cannot be read", error) from error
        if dtype.hasobject:
            raise CheckpointError(
                f"{self.source}: the array {name!r} contains Python objects, which are not read because unpickling "
                "them may run any code. Store it as numbers or as strings of fixed length."
            )
        expected = header_size + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        # Check this before memory is allocated: a damaged header may claim any size.
        if member.file_size != expected:
            raise self._damage(f"the array {name!r} has {member.file_size} bytes", f"expected {expected}")
        return ValueSpec(tuple(shape), dtype)

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        self.spec(name)
        try:
            with self._file.open(self._members[name]) as stream:
                array: np.ndarray[Any, Any] = np.lib.format.read_array(stream, allow_pickle=False)
                # The checksum is compared at the end of the member, which NumPy may not reach.
                stream.read()
        except _READ_ERRORS as error:
            raise self._damage(f"the array {name!r} cannot be read", error) from error
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def _damage(self, what: str, why: object) -> CheckpointError:
        return CheckpointError(f"{self.source}: {what}: {why}. Write the file again, or use another one.")
