"""Stack of datapoints: one datapoint, with a new first dimension, of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tpk.dataflow.memory import UNCHANGING, Allocate, aligned_empty, allocate_aligned, copy_arrays
from tpk.errors import InputError


class Stack:
    """Takes datapoints one by one, and makes one datapoint of them.

    An array is copied to its place as it comes, while it is still in the processor's cache.

    Args:
        owner: who puts the datapoints together, for messages.
        datapoint: the first one.
        number: its number in the iteration.
        capacity: how many datapoints there will be at most.
        use_list: whether each component becomes a list instead of an array.
        allocate: makes the arrays of the components that are copied as they come.

    Raises:
        InputError: it is no list, tuple or dict.
    """

    def __init__(
        self,
        owner: str,
        datapoint: Any,
        number: int,
        capacity: int,
        use_list: bool,
        allocate: Allocate = allocate_aligned,
    ) -> None:
        self.owner = owner
        self._numbers: list[int] = []
        self._is_mapping = isinstance(datapoint, Mapping)
        self._components = self._components_of(datapoint, number)
        self._length = len(datapoint)
        self._keys = set(self._components)
        values = list(map(datapoint.__getitem__, self._components))
        rows = [not use_list and _can_be_row(value) for value in values]
        arrays = iter(
            allocate([((capacity, *row.shape), row.dtype) for row, is_row in zip(values, rows, strict=True) if is_row])
        )
        self._columns: list[_Rows | _Values] = [_Rows(next(arrays)) if is_row else _Values() for is_row in rows]
        self.use_list = use_list
        self.add(datapoint, number)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, datapoint: Any, number: int) -> None:
        """Take one more.

        Args:
            datapoint: a datapoint with the same components.
            number: its number in the iteration.

        Raises:
            InputError: it does not fit those before.
        """
        if not self._fits(datapoint):
            raise InputError(
                f"{self.owner}: datapoint {number} has the components {self._components_of(datapoint, number)} "
                f"({type(datapoint).__name__}), but datapoint {self._numbers[0]}, the first of its batch, has "
                f"{self._components} ({'dict' if self._is_mapping else 'list'})"
            )
        place = len(self._numbers)
        for component, column in zip(self._components, self._columns, strict=True):
            value = datapoint[component]
            if isinstance(column, _Values):
                # An array may be written to before the others are there.
                column.values.append(value if type(value) in UNCHANGING else copy_arrays(value))
            elif type(value) is np.ndarray and value.shape == column.shape and value.dtype == column.dtype:
                column.array[place] = value
            else:
                self._misfit(column, component, value, number)
        self._numbers.append(number)

    def take(self) -> Any:
        """Return all of them as one; the stack is spent then, and holds nothing of it."""
        size = len(self._numbers)
        stacked = [
            column.array[:size] if isinstance(column, _Rows) else self.combine(component, column.values)
            for component, column in zip(self._components, self._columns, strict=True)
        ]
        self._columns = []
        return dict(zip(self._components, stacked, strict=True)) if self._is_mapping else stacked

    def combine(self, component: Any, values: list[Any]) -> Any:
        """Return what stands in the batch of the values of a component that was not copied as it came.

        Raises:
            InputError: they do not fit together.
        """
        if self.use_list:
            return values
        kinds = set(map(type, values))
        if kinds <= _PYTHON_NUMBERS:
            return self._array(component, values, f"datapoints {self._numbers[0]} to {self._numbers[-1]}")
        if all(issubclass(kind, (str, bytes)) for kind in kinds):
            # An object array: NumPy's own text types would drop trailing zero bytes.
            return np.array(values, dtype=object)
        arrays = []
        for number, value in zip(self._numbers, values, strict=True):
            arrays.append(self._array(component, value, f"datapoint {number}"))
            self.check(component, arrays[-1], arrays[0], number)
        dtype = max((array.dtype for array in arrays), key=lambda dtype: dtype.itemsize)  # texts differ in length
        return np.stack(arrays, out=aligned_empty((len(arrays), *arrays[0].shape), dtype))

    def _fits(self, datapoint: Any) -> bool:
        kind = type(datapoint)
        if kind is list or kind is tuple:
            return not self._is_mapping and len(datapoint) == self._length
        if kind is dict or isinstance(datapoint, Mapping):
            return self._is_mapping and datapoint.keys() == self._keys
        return isinstance(datapoint, (list, tuple)) and not self._is_mapping and len(datapoint) == self._length

    def _components_of(self, datapoint: Any, number: int) -> list[Any]:
        if isinstance(datapoint, Mapping):
            return list(datapoint)
        if isinstance(datapoint, (list, tuple)):
            return list(range(len(datapoint)))
        raise InputError(
            f"{self.owner}: datapoint {number} is no list, tuple or dict but {type(datapoint).__name__}. It has a "
            "component for each input of the model, as [image, label] has; for one input, write [image]."
        )

    def _misfit(self, column: _Rows, component: Any, value: Any, number: int) -> None:
        """Take what is an array only once it was made one, or say why it cannot be in the batch."""
        array = self._array(component, value, f"datapoint {number}")
        self.check(component, array, column.array[0], number)
        column.array[len(self._numbers)] = array

    def check(self, component: Any, array: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], number: int) -> None:
        """Make sure that the array of one datapoint can stand beside that of the first.

        Raises:
            InputError: it cannot.
        """
        for what in ("shape", "dtype"):
            met, wanted = getattr(array, what), getattr(expected, what)
            if met != wanted and not (what == "dtype" and met.kind == wanted.kind and met.kind in "SU"):
                raise InputError(
                    f"{self.owner}: component {component!r} of datapoint {number} has {what} {met}, but that of "
                    f"datapoint {self._numbers[0]}, the first of its batch, has {what} {wanted}; "
                    "make them equal before batching, or batch with use_list=True"
                )

    def _array(self, component: Any, value: Any, whose: str) -> np.ndarray[Any, Any]:
        if isinstance(value, np.ma.MaskedArray):
            raise InputError(
                f"{self.owner}: component {component!r} of {whose} is a masked array, whose mask would be lost; fill "
                "it (`array.filled(0)`), or make the mask a component"
            )
        try:
            array = np.asarray(value)
        except ValueError as error:  # a ragged list
            raise InputError(f"{self.owner}: component {component!r} of {whose} is no array: {error}") from error
        if array.dtype.hasobject and not isinstance(value, np.ndarray):
            raise InputError(
                f"{self.owner}: component {component!r} of {whose} is no array, number or text but "
                f"{type(value).__name__}; batch with use_list=True to keep such values in lists"
            )
        return array


class _Rows:
    """A component that is copied as it comes."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.shape, self.dtype = array.shape[1:], array.dtype
        self.array = array


class _Values:
    """A component that is put together when all of it is there."""

    def __init__(self) -> None:
        self.values: list[Any] = []


def _can_be_row(value: Any) -> bool:
    # Texts grow with the longest, which comes last perhaps.
    return type(value) is np.ndarray and value.dtype.kind not in "SU"


_PYTHON_NUMBERS = frozenset({bool, int, float, complex})
