"""Datapoints as columns: each component of all of them in one array."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tpk.errors import InputError

_KINDS = {"list": list, "tuple": tuple, "dict": dict}


class ColumnLayout:
    """How the datapoints of a file are built: all alike, each component an array of one shape and dtype, or text.

    Args:
        kind: ``"list"``, ``"tuple"`` or ``"dict"``.
        names: of the columns; of a dict its keys.
    """

    def __init__(self, kind: str, names: Sequence[str]) -> None:
        self.kind = kind
        self.names = list(names)

    @classmethod
    def of(cls, datapoint: Any, owner: str, names: Sequence[str] | None = None) -> ColumnLayout:
        """Return the layout that a flow has whose first datapoint is this.

        Args:
            datapoint: the first one.
            owner: who asks, for messages.
            names: of the columns; those of a dict must be its keys. By default the keys or ``"0"``, ``"1"``, …

        Raises:
            InputError: it has no components, or not these.
        """
        if isinstance(datapoint, Mapping):
            kind, found = "dict", list(datapoint)
            if not all(isinstance(name, str) for name in found):
                raise InputError(f"{owner}: the keys of datapoint 0 must be text, not {found}")
        elif isinstance(datapoint, (list, tuple)):
            kind, found = ("list" if isinstance(datapoint, list) else "tuple"), [str(i) for i in range(len(datapoint))]
        else:
            raise InputError(f"{owner}: datapoint 0 is no list, tuple or dict but {type(datapoint).__name__}")
        if names is not None and (set(names) != set(found) if kind == "dict" else len(names) != len(found)):
            raise InputError(f"{owner}: datapoint 0 has the components {found}, which {list(names)} do not fit")
        return cls(kind, found if names is None else names)

    def to_json(self, length: int) -> str:
        """Return it as text, along with the number of datapoints."""
        return json.dumps({"kind": self.kind, "names": self.names, "length": length})

    @classmethod
    def from_json(cls, text: str) -> tuple[ColumnLayout, int]:
        """Read what `to_json` returned.

        Raises:
            ValueError: it is something else.
        """
        try:
            found = json.loads(text)
            if found["kind"] not in _KINDS:
                raise ValueError(f"{found['kind']!r} is no kind of datapoint")
            return cls(found["kind"], found["names"]), int(found["length"])
        except (TypeError, KeyError) as error:
            raise ValueError(f"{text!r} is no layout") from error

    def values(self, datapoint: Any, index: int, owner: str) -> list[Any]:
        """Return the components of a datapoint in the order of the columns.

        Raises:
            InputError: it has others.
        """
        if isinstance(datapoint, Mapping) and self.kind == "dict" and set(datapoint) == set(self.names):
            return [datapoint[name] for name in self.names]
        if isinstance(datapoint, (list, tuple)) and self.kind != "dict" and len(datapoint) == len(self.names):
            return list(datapoint)
        raise InputError(
            f"{owner}: datapoint {index} ({type(datapoint).__name__}) does not have the components of datapoint 0, "
            f"a {self.kind} of {self.names}; LMDBSerializer stores datapoints of any structure"
        )

    def datapoint(self, values: list[Any]) -> Any:
        """Put components together again."""
        if self.kind == "dict":
            return dict(zip(self.names, values, strict=True))
        return _KINDS[self.kind](values)


class Columns:
    """Collects datapoints that are all built alike, component by component.

    Args:
        owner: who collects, for messages.
        names: of the columns; see `ColumnLayout.of`.

    Attributes:
        layout: how the datapoints are built; None before the first.
        all: the columns; empty before the first datapoint.
        count: how many datapoints have been collected.
    """

    def __init__(self, owner: str, names: Sequence[str] | None = None) -> None:
        self.layout: ColumnLayout | None = None
        self.all: list[Column] = []
        self.count = 0
        self._owner = owner
        self._names = names

    def add(self, datapoint: Any) -> int:
        """Take one more datapoint; return its size in bytes.

        Raises:
            InputError: it does not fit those before, or cannot be stored.
        """
        if self.layout is None:
            self.layout = ColumnLayout.of(datapoint, self._owner, self._names)
            self.all = [Column(name, self._owner) for name in self.layout.names]
        values = self.layout.values(datapoint, self.count, self._owner)
        size = sum(column.add(value, self.count) for column, value in zip(self.all, values, strict=True))
        self.count += 1
        return size

    def describe(self, flow: Iterable[Any]) -> str:
        """Return the layout and the number of the datapoints, as `ColumnLayout.from_json` reads them.

        Args:
            flow: where they came from, for messages.

        Raises:
            InputError: there was no datapoint.
        """
        if self.layout is None:
            raise InputError(f"{self._owner}: the flow {type(flow).__name__} has no datapoint, so nothing was saved")
        return self.layout.to_json(self.count)


class Column:
    """Collects one component of many datapoints, and makes sure that it comes back as it was.

    Args:
        name: of the component, for messages.
        owner: who collects, for messages.
    """

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self.owner = owner
        self.dtype: np.dtype[Any] | None = None
        self.shape: tuple[int, ...] = ()
        self.is_text = False
        self._held: list[Any] = []

    def add(self, value: Any, index: int) -> int:
        """Take the component of one more datapoint; return its size in bytes.

        Raises:
            InputError: it does not fit those before, or is neither array, number nor text.
        """
        where = f"{self.owner}: component {self.name!r} of datapoint {index}"
        is_text = isinstance(value, str)
        # Numbers and arrays are copied: a flow may use an array again for its next datapoint.
        array = np.empty((), object) if is_text else _as_array(value, where)
        if self.dtype is None:
            self.dtype, self.shape, self.is_text = array.dtype, array.shape, is_text
        elif (array.dtype, array.shape) != (self.dtype, self.shape):
            raise InputError(
                f"{where} has dtype {array.dtype} and shape {array.shape}, that of datapoint 0 dtype {self.dtype} and "
                f"shape {self.shape}; make them equal, or use LMDBSerializer, which stores what varies"
            )
        if is_text and "\0" in value:
            raise InputError(f"{where} is text with a null character, which the format ends text at")
        self._held.append(value if is_text else array)
        return len(value) if is_text else array.nbytes

    def take(self) -> np.ndarray[Any, Any]:
        """Return what is held as one array, of objects if it is text, and hold nothing any more."""
        held, self._held = self._held, []
        block: np.ndarray[Any, Any] = np.empty((len(held), *self.shape), self.dtype)
        for place, value in enumerate(held):
            block[place] = value
        return block


def _as_array(value: Any, where: str) -> np.ndarray[Any, Any]:
    try:
        array = np.array(value)
    except ValueError as error:
        raise InputError(f"{where} is no array: {error}") from error
    if array.dtype.kind not in "biufc":
        raise InputError(
            f"{where} ({type(value).__name__}) is no array of numbers, no number and no text; "
            "LMDBSerializer stores other values"
        )
    return array
