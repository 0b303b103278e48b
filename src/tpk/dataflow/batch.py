"""Put consecutive datapoints together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tpk.dataflow.base import ProxyDataFlow
from tpk.dataflow.memory import aligned_empty
from tpk.errors import ConfigError, InputError


class BatchData(ProxyDataFlow):
    """Put each `batch_size` consecutive datapoints together; each component gets a new first dimension.

    Datapoints that are lists or tuples become a list, dicts a dict. Within a component, arrays and NumPy
    scalars must all have the same shape and dtype; Python numbers get the dtype that `numpy.asarray` gives
    them, text and bytes become an array of objects. Arrays are laid out so that TensorFlow takes them without
    another copy.

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

    def __init__(self, flow: Iterable[Any], batch_size: int, remainder: bool = False, use_list: bool = False) -> None:
        super().__init__(flow)
        if batch_size < 1:
            raise ConfigError(f"BatchData: batch_size must be 1 or more, not {batch_size}")
        self.batch_size = batch_size
        self.remainder = remainder
        self.use_list = use_list

    def __len__(self) -> int:
        batches, rest = divmod(super().__len__(), self.batch_size)
        return batches + (self.remainder and rest > 0)

    def __iter__(self) -> Iterator[Any]:
        held: list[Any] = []
        first = 0
        for datapoint in self.flow:
            held.append(datapoint)
            if len(held) == self.batch_size:
                yield self._batch(held, first)
                first += self.batch_size
                held = []
        if held and self.remainder:
            yield self._batch(held, first)

    def _batch(self, datapoints: list[Any], first: int) -> Any:
        columns = _columns(datapoints, first)
        if not self.use_list:
            columns = {component: _stack(values, component, first) for component, values in columns.items()}
        return columns if isinstance(datapoints[0], Mapping) else list(columns.values())


def _columns(datapoints: list[Any], first: int) -> dict[Any, Any]:
    """Return, for each component of the first datapoint, its values in all of them."""
    components = _components(datapoints[0], first)
    as_set = set(components)
    for index, datapoint in enumerate(datapoints[1:], first + 1):
        if set(_components(datapoint, index)) != as_set or isinstance(datapoint, Mapping) != isinstance(
            datapoints[0], Mapping
        ):
            raise InputError(
                f"BatchData: datapoint {index} has the components {_components(datapoint, index)} "
                f"({type(datapoint).__name__}), but datapoint {first}, the first of its batch, has "
                f"{components} ({type(datapoints[0]).__name__})"
            )
    return {component: [datapoint[component] for datapoint in datapoints] for component in components}


def _components(datapoint: Any, index: int) -> list[Any]:
    if isinstance(datapoint, Mapping):
        return list(datapoint)
    if isinstance(datapoint, (list, tuple)):
        return list(range(len(datapoint)))
    raise InputError(f"BatchData: datapoint {index} is no list, tuple or dict but {type(datapoint).__name__}")


def _stack(values: list[Any], component: Any, first: int) -> np.ndarray[Any, Any]:
    if all(isinstance(value, (str, bytes)) for value in values):
        # An object array: NumPy's own text types would drop trailing zero bytes.
        return np.array(values, dtype=object)
    if all(type(value) in _PYTHON_NUMBERS for value in values):
        return _as_array(values, component, f"datapoints {first} to {first + len(values) - 1}")
    arrays = [_as_array(value, component, f"datapoint {index}") for index, value in enumerate(values, first)]
    for index, array in enumerate(arrays[1:], first + 1):
        for what in ("shape", "dtype"):
            met, expected = getattr(array, what), getattr(arrays[0], what)
            if met != expected and not (what == "dtype" and met.kind == expected.kind and met.kind in "SU"):
                raise InputError(
                    f"BatchData: component {component!r} of datapoint {index} has {what} {met}, but that of "
                    f"datapoint {first}, the first of its batch, has {what} {expected}; "
                    "make them equal before batching, or batch with use_list=True"
                )
    dtype = max((array.dtype for array in arrays), key=lambda dtype: dtype.itemsize)  # texts differ in length
    return np.stack(arrays, out=aligned_empty((len(arrays), *arrays[0].shape), dtype))


_PYTHON_NUMBERS = frozenset({bool, int, float, complex})


def _as_array(value: Any, component: Any, whose: str) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        raise InputError(f"BatchData: component {component!r} of {whose} is no array: {error}") from error
    if array.dtype.hasobject and not isinstance(value, np.ndarray):
        raise InputError(
            f"BatchData: component {component!r} of {whose} is no array, number or text but "
            f"{type(value).__name__}; batch with use_list=True to keep such values in lists"
        )
    return array
