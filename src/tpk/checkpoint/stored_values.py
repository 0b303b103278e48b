"""Arrays by name, wherever they are stored: what a variable can be restored from. Needs no TensorFlow."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from tpk.errors import CheckpointError

STORED_BFLOAT16 = np.dtype("V2")
"""What `numpy.save` makes of bfloat16, which NumPy does not have: two bytes without a meaning. No other dtype of
variables ends like that."""


@attrs.frozen
class ValueSpec:
    """What is known of a stored value before it is read.

    Attributes:
        shape: its shape.
        dtype: its NumPy dtype; `object` for strings of any length.
        is_literal: whether it came as plain Python numbers, whose dtype is only NumPy's default for them.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_literal: bool = False

    @property
    def dtype_name(self) -> str:
        """The name of the dtype as TensorFlow says it, such as ``bfloat16`` or ``string``."""
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
    """A mapping of names to arrays, each read only when it is asked for.

    Args:
        source: where the values are, for messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    @abc.abstractmethod
    def spec(self, name: str) -> ValueSpec:
        """Return shape and dtype of the value called `name`, without reading it.

        Raises:
            KeyError: there is none.
            CheckpointError: the file is damaged.
        """


class DictValues(StoredValues):
    """Arrays in memory.

    Args:
        values: arrays, or what NumPy makes arrays of, by name, with or without ``:0``.
        source: where they come from, for messages.

    Raises:
        CheckpointError: a name is not a string, or two names are the same but for the ``:0``.
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
        """Return shape and dtype of the value called `name`."""
        return self._specs[name]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
