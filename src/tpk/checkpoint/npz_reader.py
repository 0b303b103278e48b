"""Arrays of an ``.npz`` file, each read only when it is asked for. Needs no TensorFlow."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tpk.checkpoint.stored_values import StoredValues, ValueSpec
from tpk.errors import CheckpointError

_SUFFIX = ".npy"
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_DAMAGES = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, NotImplementedError)


class NpzReader(StoredValues):
    """The arrays of an ``.npz`` file by name; a context manager that closes the file.

    Args:
        path: the file, written by `numpy.savez`, `numpy.savez_compressed` or ``tpk checkpoint to-npz``.

    Raises:
        CheckpointError: if there is no such file, it is no ``.npz`` file, or damaged.

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
        except _DAMAGES as error:
            raise self._damage("it is no .npz file, or damaged", error) from error
        members = [member for member in self._file.infolist() if member.filename.endswith(_SUFFIX)]
        # A later member replaces an earlier one of the same name, as in any zip file.
        self._members = {member.filename.removesuffix(_SUFFIX).removesuffix(":0"): member for member in members}

    def __enter__(self) -> NpzReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def spec(self, name: str) -> ValueSpec:
        """Return shape and dtype of the array called `name`; only its header is read."""
        member = self._members[name]
        try:
            with self._file.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                if version not in _HEADER_READERS:
                    raise ValueError(f"its .npy format {version} is not known")
                shape, _, dtype = _HEADER_READERS[version](stream)
                header_size = stream.tell()
        except _DAMAGES as error:
            raise self._damage(f"the array {name!r} cannot be read", error) from error
        if dtype.hasobject:
            raise CheckpointError(
                f"{self.source}: the array {name!r} holds Python objects, which only unpickling could read, and that "
                "may run any code. Store it as numbers or as strings of fixed length."
            )
        expected = header_size + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        # Before memory is taken for what a damaged header claims.
        if member.file_size != expected:
            raise self._damage(f"the array {name!r} has {member.file_size} bytes", f"expected {expected}")
        return ValueSpec(tuple(shape), dtype)

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        self.spec(name)
        try:
            with self._file.open(self._members[name]) as stream:
                array: np.ndarray[Any, Any] = np.lib.format.read_array(stream, allow_pickle=False)
                # The checksum is compared at the end of the member, which NumPy need not reach.
                stream.read()
        except _DAMAGES as error:
            raise self._damage(f"the array {name!r} cannot be read", error) from error
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def _damage(self, what: str, why: object) -> CheckpointError:
        return CheckpointError(f"{self.source}: {what}: {why}. Write the file anew, or give another one.")
