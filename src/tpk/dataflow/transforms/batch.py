"""Batches of consecutive datapoints, or of datapoints of the same shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from operator import countOf
from typing import Any, TypeAlias

import attrs
import numpy as np

from tpk.argument_checks import check_at_least
from tpk.dataflow.base import DataFlow, LookaheadDataFlow, StatefulProxyDataFlow, flow_length, may_refill, shard
from tpk.dataflow.memory import (
    FEW_BYTES,
    UNCHANGING,
    Allocate,
    ArraySpec,
    aligned_empty,
    allocate_arrays,
    copy_arrays,
)
from tpk.dataflow.position import flows_within
from tpk.dataflow.transforms.map import describe_components
from tpk.errors import InputError


class BatchingDataFlow(StatefulProxyDataFlow):
    """Base of the flows that join datapoints to batches.

    Args:
        flow: any iterable of datapoints.
        batch_size: number of datapoints in a batch.
        remainder: whether the last datapoints of a pass make smaller batches.
    """

    refills_arrays = False
    use_list = False

    def __init__(self, flow: Iterable[Any], batch_size: int, remainder: bool) -> None:
        super().__init__(flow)
        check_at_least(self, 1, batch_size=batch_size)
        self.batch_size = batch_size
        self.remainder = remainder
        self._allocate: Allocate | None = None

    def joiner(self) -> Joiner:
        """Return what joins the datapoints of a batch."""
        return Joiner(type(self).__name__, self.use_list, self._allocate)

    def allocate_with(self, allocate: Allocate) -> None:
        """Join the batches in memory from `allocate`."""
        self._allocate = allocate


class BatchData(BatchingDataFlow):
    """Join each `batch_size` consecutive datapoints; each component gets a new first dimension.

    Datapoints that are lists or tuples become a list, dicts a dict. Within a component, arrays and NumPy
    scalars must all have the same shape and dtype; Python numbers get the dtype that `numpy.asarray` gives
    them, text and bytes become an array of objects. Large arrays are aligned, so that TensorFlow takes them without
    another copy.

    Workers that share a `BatchData` make the same batches as a single process: each takes its datapoints in blocks of
    a batch. The exception is a flow beneath that drops datapoints, such as a `MapData` whose function returns None:
    then each worker makes batches of the rest of its share.

    Args:
        flow: any iterable of datapoints.
        batch_size: number of datapoints in a batch.
        remainder: whether the last datapoints of a pass make a smaller batch; otherwise they are dropped.
        use_list: whether a component of a batch is the list of the values instead of an array, which takes
            any type and shape.

    Raises:
        ConfigError: the batch size is less than 1.
        InputError: datapoints of one batch do not fit together; the error names the component, the shapes or dtypes,
            and the datapoints, counted from 0 in each pass.

    Example:
        ```python
        flow = BatchData([[image, label] for image, label in data], 32)
        images, labels = next(iter(flow))  # images.shape == (32, *image.shape)
        ```
    """

    def __init__(self, flow: Iterable[Any], batch_size: int, remainder: bool = False, use_list: bool = False) -> None:
        super().__init__(flow, batch_size, remainder)
        self.use_list = use_list

    def __len__(self) -> int:
        batches, rest = divmod(super().__len__(), self.batch_size)
        return batches + (self.remainder and rest > 0)

    def __iter__(self) -> Iterator[Any]:
        if self.begin() == "end":
            self.place = None
            return
        joiner, size, datapoints = self.joiner(), self.batch_size, iter(self.upstream)
        hold: Callable[[Iterator[Any]], list[Any] | Copies] = list
        if may_refill(self.flow):
            hold = partial(joiner.copies, size=size)
        first = self.upstream.delivered
        while len(held := hold(islice(datapoints, size))) == size:
            batch = joiner.join(held, first)
            del held  # its memory may be used for the next batch
            yield batch
            batch = None
            first += size
        if held and self.remainder:
            # The flow beneath is exhausted already, so its position does not show this batch.
            self.place = "end"
            yield joiner.join(held, first)
            self.place = None

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath, which has its datapoints in blocks of a batch."""
        return self.with_sources([shard(self.flow, index, count, block * self.batch_size)])


def left_out(flow: Iterable[Any]) -> int:
    """Return how many datapoints the `BatchData`s in a flow are known to drop at the end of each pass."""
    if isinstance(flow, BatchData):
        return 0 if flow.remainder else (flow_length(flow.flow) or 0) % flow.batch_size
    return sum(map(left_out, flows_within(flow)))


class BatchDataByShape(BatchingDataFlow, LookaheadDataFlow):
    """Join `batch_size` datapoints whose component `idx` has the same shape, as soon as there are that many.

    Otherwise like `BatchData`. Each worker joins the datapoints of its share, so each makes a separate remainder.

    Args:
        flow: any iterable of datapoints.
        batch_size: number of datapoints in a batch.
        idx: the index or key of the component whose shape counts.
        remainder: whether the last datapoints of each shape in a pass make smaller batches; otherwise they are
            dropped.

    Raises:
        ConfigError: the batch size is less than 1.
        InputError: a datapoint has no such component, or other components of one batch do not fit together.
    """

    def __init__(self, flow: Iterable[Any], batch_size: int, idx: int | str, remainder: bool = False) -> None:
        super().__init__(flow, batch_size, remainder)
        self.idx = idx

    def __len__(self) -> int:
        raise TypeError("the number of batches of each shape is unknown before the data is read")

    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver a pass, given the datapoints of the flow beneath."""
        held = self.new_groups()
        joiner = self.joiner()
        if may_refill(self.flow):
            datapoints = map(copy_arrays, datapoints)
        component, size = self.idx, self.batch_size
        for number, datapoint in enumerate(datapoints, self.upstream.delivered):
            try:
                shape = datapoint[component].shape
            except (AttributeError, LookupError, TypeError):
                shape = self._shape(datapoint, number)
            alike, numbers = held[shape]
            alike.append(datapoint)
            numbers.append(number)
            if len(alike) == size:
                del held[shape]
                yield joiner.join(alike, numbers)
                if not held:
                    self.caught_up()
        for alike, numbers in held.values() if self.remainder else ():
            yield joiner.join(alike, numbers)

    def new_groups(self) -> dict[tuple[int, ...], tuple[list[Any], list[int]]]:
        """Return the datapoints of each shape, and their numbers, at the start of a pass: none."""
        return defaultdict(lambda: ([], []))

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath."""
        return self.with_sources([shard(self.flow, index, count)])

    def _shape(self, datapoint: Any, number: int) -> tuple[int, ...]:
        try:
            return np.shape(datapoint[self.idx])
        except (LookupError, TypeError) as error:
            raise InputError(
                f"BatchDataByShape: datapoint {number} has no component {self.idx!r}: it "
                f"{describe_components(datapoint)}"
            ) from error
        except ValueError as error:
            raise InputError(
                f"BatchDataByShape: component {self.idx!r} of datapoint {number} has no shape: {error}"
            ) from error


class Joiner:
    """Joins the datapoints of a batch.

    Args:
        owner: the name of the flow that makes the batch, for messages.
        use_list: whether each component becomes a list instead of an array.
        allocate: makes the arrays of a batch; by default NumPy, aligned if they are large.
    """

    def __init__(self, owner: str, use_list: bool, allocate: Allocate | None = None) -> None:
        self.owner = owner
        self.use_list = use_list
        self._allocate = allocate
        # Whether to give all components to `stack` at once: it makes new arrays, and has not refused any so far.
        self._is_simple = not use_list and allocate is None
        self._numbers: Sequence[int] = ()

    def copies(self, datapoints: Iterator[Any], size: int) -> list[Any] | Copies:
        """Return copies of up to `size` datapoints of a flow that may write to their arrays again, for `join`.

        Each array is copied to its row of the batch as it comes, while it is in the processor's cache, until a
        datapoint does not fit the first one.
        """
        kind: type | None = None
        columns: list[_Column] = []
        count = 0
        for datapoint in datapoints:
            if count == 0 and type(datapoint) in (list, tuple, dict):
                kind, arrays = type(datapoint), self._new_arrays(datapoint, size)
                columns = [_column(name, arrays.get(name, [None] * size)) for name in _names(datapoint)]
            if type(datapoint) is not kind or not _copy_to_row(datapoint, columns, count):
                return [*Copies(kind, columns, count).as_list(), *map(copy_arrays, chain([datapoint], datapoints))]
            datapoint = None  # its memory may be used for the next one
            count += 1
        return Copies(kind, columns, count)

    def join(self, datapoints: Sequence[Any] | Copies, numbers: Sequence[int] | int) -> Any:
        """Return several datapoints joined into one.

        Args:
            datapoints: at least one datapoint.
            numbers: their numbers in the pass, for messages; or the number of the first, if they are consecutive.

        Raises:
            InputError: they do not fit together.
        """
        if self._is_simple and isinstance(datapoints, list):
            kind, count = type(datapoints[0]), len(datapoints)
            try:
                if kind is list and countOf(map(type, datapoints), list) == count:
                    return list(map(self.stack, zip(*datapoints, strict=True)))
                if kind is dict and countOf(map(type, datapoints), dict) == count:
                    return {name: self.stack(values) for name, values in _columns_of_dicts(datapoints)}
            except _DOES_NOT_STACK:
                self._is_simple = False  # text, for example: do not try it again
        self._numbers = range(numbers, numbers + len(datapoints)) if isinstance(numbers, int) else numbers
        if isinstance(datapoints, Copies):
            joined = {name: self._join(name, values[: len(datapoints)]) for name, values, *_ in datapoints.columns}
            return joined if datapoints.kind is dict else list(joined.values())
        arrays = {} if self._allocate is None else self._new_arrays(datapoints[0], len(datapoints))
        joined = {name: self._join(name, values, arrays.get(name)) for name, values in self._columns(datapoints)}
        return list(joined.values()) if isinstance(datapoints[0], (list, tuple)) else joined

    @staticmethod
    def stack(values: Sequence[Any], array: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Return the values of a component as one array, if they are of the usual kinds; `combine` is slower.

        Args:
            values: arrays with the same shape and dtype, or numbers.
            array: where to put arrays; None for a new array.

        Raises:
            TypeError, ValueError, OverflowError: they are something else.
        """
        first = values[0]
        kind = type(first)
        if kind is np.ndarray:
            shape, dtype, count = first.shape, first.dtype, len(values)
            for each in values:
                if type(each) is not kind or each.shape != shape or each.dtype != dtype:
                    raise TypeError
            if array is None and count * first.nbytes <= FEW_BYTES and dtype.isnative and not dtype.hasobject:
                try:
                    # The fastest way that does not align the array.
                    return np.ndarray((count, *shape), dtype, bytearray().join(values))
                except (TypeError, ValueError):  # they are not contiguous, or empty
                    return np.array(values)
            if array is None:
                array = aligned_empty((count, *shape), dtype.newbyteorder("="))
            if not first.size or not shape:
                return np.stack(values, out=array)
            np.concatenate(values, out=array.reshape(-1, *shape[1:]))  # faster than `numpy.stack`
            return array
        kinds = set(map(type, values))
        if kinds <= _PYTHON_NUMBERS or (len(kinds) == 1 and isinstance(first, (np.number, np.bool_))):
            numbers = np.asarray(values)
            if not numbers.dtype.hasobject:  # as integers of more than 64 bits have
                return numbers
        raise TypeError

    def combine(self, component: Any, values: Sequence[Any]) -> Any:
        """Return the joined values of a component that `stack` does not take.

        Raises:
            InputError: they do not fit together.
        """
        if all(isinstance(value, (str, bytes)) for value in values):
            # An object array: NumPy's own text types would drop trailing zero bytes.
            return np.array(values, dtype=object)
        arrays = []
        for number, value in zip(self._numbers, values, strict=True):
            arrays.append(self.as_array(component, value, f"datapoint {number}"))
            self.check(component, arrays[-1], arrays[0], number)
        dtype = max((array.dtype for array in arrays), key=lambda dtype: dtype.itemsize)  # texts differ in length
        return np.stack(arrays, out=aligned_empty((len(arrays), *arrays[0].shape), dtype))

    def check(self, component: Any, array: np.ndarray[Any, Any], first: np.ndarray[Any, Any], number: int) -> None:
        """Check that an array fits the first one of its component.

        Raises:
            InputError: it does not.
        """
        for what in ("shape", "dtype"):
            actual, expected = getattr(array, what), getattr(first, what)
            if actual != expected and not (what == "dtype" and actual.kind == expected.kind and actual.kind in "SU"):
                raise InputError(
                    f"{self.owner}: component {component!r} has {what} {actual} in datapoint {number}, but "
                    f"{expected} in datapoint {self._numbers[0]}, the first of its batch; "
                    "make them equal before batching, or batch with use_list=True"
                )

    def as_array(self, component: Any, value: Any, whose: str) -> np.ndarray[Any, Any]:
        """Return a value of a component as an array.

        Raises:
            InputError: it has no array form, or would lose something.
        """
        if isinstance(value, np.ma.MaskedArray):
            raise InputError(
                f"{self.owner}: component {component!r} of {whose} is a masked array, whose mask would be lost; fill "
                "it (`array.filled(0)`), or make the mask a component"
            )
        try:
            array = np.asarray(value)
        except ValueError as error:  # a ragged list
            raise InputError(f"{self.owner}: component {component!r} of {whose} is not an array: {error}") from error
        if array.dtype.hasobject and not isinstance(value, np.ndarray):
            raise InputError(
                f"{self.owner}: component {component!r} of {whose} is not an array, number or text but "
                f"{type(value).__name__}; batch with use_list=True to keep such values in lists"
            )
        return array

    def _columns(self, datapoints: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Return each component with its values."""
        first = datapoints[0]
        kinds = set(map(type, datapoints))
        try:
            if all(issubclass(kind, (list, tuple)) for kind in kinds):
                return list(enumerate(zip(*datapoints, strict=True)))
            is_named = all(issubclass(kind, Mapping) for kind in kinds)
            if is_named and all(datapoint.keys() == first.keys() for datapoint in datapoints):
                return _columns_of_dicts(datapoints)
        except ValueError:  # they have different numbers of components
            pass
        raise self._misfit(datapoints)

    def _new_arrays(self, datapoint: Any, size: int) -> dict[Any, np.ndarray[Any, Any]]:
        """Return a new array for each component that is an array in the first datapoint of a batch."""
        if self.use_list:
            return {}
        specs: dict[Any, ArraySpec] = {}
        for name in _names(datapoint):
            value = datapoint[name]
            # Texts grow with the longest one, which may come last.
            is_array = type(value) is np.ndarray and value.ndim and value.dtype.isnative
            if is_array and value.dtype.kind not in "SUO":
                specs[name] = ((size, *value.shape), value.dtype)
        allocate = self._allocate or allocate_arrays
        return dict(zip(specs, allocate(list(specs.values())), strict=True))

    def _join(self, component: Any, values: Any, array: np.ndarray[Any, Any] | None = None) -> Any:
        if self.use_list or isinstance(values, np.ndarray):  # an array of `Copies`
            return values if isinstance(values, np.ndarray) else list(values)
        try:
            return self.stack(values, array)
        except _DOES_NOT_STACK:
            return self.combine(component, values)

    def _misfit(self, datapoints: Sequence[Any]) -> InputError:
        """Return the error for datapoints that do not all have the same components."""
        found = list(map(_components, datapoints))
        row = next(row for row, components in enumerate(found) if components is None or components != found[0])
        message = f"{self.owner}: datapoint {self._numbers[row]} {describe_components(datapoints[row])}"
        if found[row] is None:
            message += "; it needs one component for each input of the model, as in [image, label] or [image]"
        else:
            first = describe_components(datapoints[0])
            message += f", but datapoint {self._numbers[0]}, the first of its batch, {first}"
        return InputError(message)


@attrs.frozen
class Copies:
    """Copies of the datapoints of a batch, which have the same type and components.

    Attributes:
        kind: their type: list, tuple or dict; None without datapoints.
        columns: their components.
        count: the number of datapoints.
    """

    kind: type | None
    columns: list[_Column]
    count: int

    def __len__(self) -> int:
        return self.count

    def as_list(self) -> list[Any]:
        """Return the datapoints."""
        rows = [{name: values[row] for name, values, *_ in self.columns} for row in range(self.count)]
        return rows if self.kind is dict else [list(row.values()) for row in rows]


_Column: TypeAlias = tuple[Any, Any, tuple[int, ...] | None, np.dtype[Any] | None]
"""The name of a component, room for its values in a batch, and the shape and dtype of each; None if it is a list."""


def _column(name: Any, values: Any) -> _Column:
    is_array = isinstance(values, np.ndarray)
    return (name, values, values.shape[1:], values.dtype) if is_array else (name, values, None, None)


def _copy_to_row(datapoint: Any, columns: list[_Column], row: int) -> bool:
    """Copy the components of a datapoint to the columns of a batch, and return whether they fit."""
    if len(datapoint) != len(columns):
        return False
    try:
        for name, values, shape, dtype in columns:
            value = datapoint[name]
            if shape is None:
                values[row] = value if type(value) in UNCHANGING else copy_arrays(value)
            elif type(value) is np.ndarray and value.shape == shape and value.dtype == dtype:
                values[row] = value
            else:
                return False
    except KeyError:
        return False
    return True


def _columns_of_dicts(datapoints: Sequence[Mapping[Any, Any]]) -> list[tuple[Any, Sequence[Any]]]:
    """Return each component of dicts with its values.

    Raises:
        KeyError: they have different keys.
    """
    first = datapoints[0]
    if countOf(map(len, datapoints), len(first)) < len(datapoints):
        raise KeyError
    # A comprehension is faster here than `map` with an `itemgetter`.
    return [(name, [datapoint[name] for datapoint in datapoints]) for name in first]


def _names(datapoint: Any) -> Iterable[Any]:
    return range(len(datapoint)) if isinstance(datapoint, (list, tuple)) else datapoint


def _components(datapoint: Any) -> Any:
    """Return the names or the number of the components; None if it has none."""
    if isinstance(datapoint, Mapping):
        return set(datapoint)
    return len(datapoint) if isinstance(datapoint, (list, tuple)) else None


_DOES_NOT_STACK = (KeyError, TypeError, ValueError, OverflowError)

_PYTHON_NUMBERS = frozenset({bool, int, float, complex})
