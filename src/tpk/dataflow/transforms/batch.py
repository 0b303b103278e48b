"""Batches of consecutive datapoints, or of datapoints of the same shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from tpk.checks import check_at_least
from tpk.dataflow.base import DataFlow, LookaheadDataFlow, StatefulProxyDataFlow, flow_length, shard
from tpk.dataflow.memory import UNCHANGING, Allocate, aligned_empty, allocate_aligned, copy_arrays
from tpk.dataflow.position import flows_within
from tpk.dataflow.transforms.map import describe_components
from tpk.errors import InputError


class BatchData(StatefulProxyDataFlow):
    """Put each `batch_size` consecutive datapoints together; each component gets a new first dimension.

    Datapoints that are lists or tuples become a list, dicts a dict. Within a component, arrays and NumPy
    scalars must all have the same shape and dtype; Python numbers get the dtype that `numpy.asarray` gives
    them, text and bytes become an array of objects. Arrays are laid out so that TensorFlow takes them without
    another copy.

    The workers that share it make the batches that one would: each takes its datapoints in blocks of a batch.

    Args:
        flow: any iterable of datapoints.
        batch_size: how many.
        remainder: whether the last ones make a smaller batch if they are fewer; otherwise they are dropped.
        use_list: whether a component of a batch is the list of the values instead of an array, which takes
            any type and shape.

    Raises:
        ConfigError: the batch size is not 1 or more.
        InputError: datapoints of one batch do not fit together; it names the component, the shapes or dtypes,
            and the datapoints, counted from 0 in each iteration.

    Example:
        ```python
        flow = BatchData([[image, label] for image, label in data], 32)
        images, labels = next(iter(flow))  # images.shape == (32, *image.shape)
        ```
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], batch_size: int, remainder: bool = False, use_list: bool = False) -> None:
        super().__init__(flow)
        check_at_least(self, 1, batch_size=batch_size)
        self.batch_size = batch_size
        self.remainder = remainder
        self.use_list = use_list
        self._allocate: Allocate = allocate_aligned

    def __len__(self) -> int:
        batches, rest = divmod(super().__len__(), self.batch_size)
        return batches + (self.remainder and rest > 0)

    def __iter__(self) -> Iterator[Any]:
        if self.begin() == "end":
            self.place = None
            return
        datapoints = iter(self.upstream)
        for datapoint in datapoints:
            first = self.upstream.delivered - 1
            stack = self.begin_batch(datapoint, first)
            for number, following in enumerate(islice(datapoints, self.batch_size - 1), self.upstream.delivered):
                stack.add(following, number)
            # What a batch is made of may be as large as the batch itself; only one of them is kept.
            datapoint = following = None
            if len(stack) == self.batch_size:
                yield stack.take()
            elif self.remainder:
                # The flow beneath is at its end already, and there is one batch that does not show in its position.
                self.place = "end"
                yield stack.take()
                self.place = None

    def begin_batch(self, datapoint: Any, number: int) -> Stack:
        """Begin a batch; override it where datapoints are put together otherwise.

        Args:
            datapoint: its first one.
            number: the number of that in the iteration.
        """
        return Stack(type(self).__name__, datapoint, number, self.batch_size, self.use_list, self._allocate)

    def allocate_with(self, allocate: Allocate) -> None:
        """Put the batches together in memory from `allocate`."""
        self._allocate = allocate

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath, which has its datapoints in blocks of a batch."""
        return self.with_sources([shard(self.flow, index, count, block * self.batch_size)])


def left_out(flow: Iterable[Any]) -> int:
    """Return how many datapoints the `BatchData`s in a flow are known to drop at the end of each pass."""
    if isinstance(flow, BatchData):
        return 0 if flow.remainder else (flow_length(flow.flow) or 0) % flow.batch_size
    return sum(map(left_out, flows_within(flow)))


class BatchDataByShape(LookaheadDataFlow):
    """Put `batch_size` datapoints together whose component `idx` has the same shape, as soon as there are as many.

    Otherwise as `BatchData`. The workers that share it put the datapoints of their shares
    together, so each of them has a remainder of its own.

    Args:
        flow: any iterable of datapoints.
        batch_size: how many.
        idx: the index or the key of the component whose shape counts.
        remainder: whether what is left of each shape at the end of a pass makes smaller batches; otherwise it is
            dropped.

    Raises:
        ConfigError: the batch size is not 1 or more.
        InputError: a datapoint has no such component, or datapoints of one batch do not fit together elsewhere.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], batch_size: int, idx: int | str, remainder: bool = False) -> None:
        super().__init__(flow)
        check_at_least(self, 1, batch_size=batch_size)
        self.batch_size = batch_size
        self.idx = idx
        self.remainder = remainder
        self._allocate: Allocate = allocate_aligned

    def __len__(self) -> int:
        raise TypeError("how many batches there are of each shape is not known before the data was seen")

    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver a pass, given what the flow beneath delivers."""
        held: dict[tuple[int, ...], Stack] = {}
        for number, datapoint in enumerate(datapoints, self.upstream.delivered):
            shape = self._shape(datapoint, number)
            stack = held.get(shape)
            if stack is None:
                stack = held[shape] = self.begin_batch(datapoint, number)
            else:
                stack.add(datapoint, number)
            if len(stack) == self.batch_size:
                yield held.pop(shape).take()
                if not held:
                    self.caught_up()
        if self.remainder:
            for stack in held.values():
                yield stack.take()

    def begin_batch(self, datapoint: Any, number: int) -> Stack:
        """Begin the batch of a shape, as `BatchData.begin_batch` does."""
        return Stack(type(self).__name__, datapoint, number, self.batch_size, use_list=False, allocate=self._allocate)

    def allocate_with(self, allocate: Allocate) -> None:
        """Put the batches together in memory from `allocate`."""
        self._allocate = allocate

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath."""
        return self.with_sources([shard(self.flow, index, count)])

    def _shape(self, datapoint: Any, number: int) -> tuple[int, ...]:
        try:
            return np.shape(datapoint[self.idx])
        except (LookupError, TypeError) as error:
            raise InputError(
                f"BatchDataByShape: datapoint {number} has no component {self.idx!r}, but "
                f"{describe_components(datapoint)}"
            ) from error
        except ValueError as error:
            raise InputError(
                f"BatchDataByShape: component {self.idx!r} of datapoint {number} has no shape: {error}"
            ) from error


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
