"""Made-up data, to measure and to try things with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tpk.checks import check_at_least
from tpk.dataflow.base import DataFlow, RNGDataFlow, StatefulDataFlow, check_share, length_of_share
from tpk.dataflow.memory import aligned_empty
from tpk.errors import ConfigError


class FakeData(StatefulDataFlow, RNGDataFlow):
    """Deliver arrays of given shapes: random ones, or the same ones again and again.

    Args:
        shapes: for each component its shape.
        size: how many datapoints a pass has.
        random: whether each datapoint is made anew. Otherwise all of them are one and the same list of arrays, which
            start on 64 bytes, so that delivering costs nothing: for measuring everything else.
        dtype: of all components, or for each one its own: booleans, integers or floating-point numbers.
        domain: the numbers are from the first on, below the second; one pair, or for each component its own.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: the size is negative; a shape, dtype or domain is none, or there is not one for each component.

    Example:
        ```python
        flow = FakeData([(224, 224, 3), ()], 1000, dtype=["uint8", "int64"], domain=[(0, 256), (0, 1000)])
        ```
    """

    refills_arrays = False

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        size: int = 1000,
        random: bool = True,
        dtype: Any = "float32",
        domain: Any = (0, 1),
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        check_at_least(self, 0, size=size)
        self.shapes = [_shape(shape) for shape in shapes]
        self._size = size
        self.random = random
        self.dtypes = [_dtype(each) for each in _for_each("dtype", dtype, len(self.shapes), _is_several_dtypes)]
        self.domains = [_domain(each) for each in _for_each("domain", domain, len(self.shapes), _is_several_domains)]
        for kind, (low, high) in zip(self.dtypes, self.domains, strict=True):
            if kind.kind in "iu" and not (np.iinfo(kind).min <= low and high - 1 <= np.iinfo(kind).max):
                raise ConfigError(f"FakeData: domain ({low}, {high}) does not fit into {kind}")

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        begin = self.begin() or 0
        rng = self.epoch_rng()
        components = list(zip(self.shapes, self.dtypes, self.domains, strict=True))
        if not self.random:
            # Of no epoch and no worker: always the same.
            rng = np.random.default_rng(self.seed)
            fixed = [_array(rng, *component) for component in components]
        else:
            for _ in range(begin):
                [_array(rng, *component) for component in components]
        for number in range(begin, self._size):
            self.place = number + 1
            yield [_array(rng, *component) for component in components] if self.random else fixed
        self.place = None

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return a flow of as many datapoints as the share of a worker has, with random numbers of its own."""
        check_share(index, count)
        share = copy.copy(self)
        share.worker = (*self.worker, index)
        share._size = length_of_share(self._size, index, count, block)
        return share


def _array(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], domain: tuple[Any, Any]
) -> np.ndarray[Any, Any]:
    array = aligned_empty(shape, dtype)
    low, high = domain
    if dtype.kind in "iu":
        array[...] = rng.integers(low, high, shape, dtype)
    elif dtype.kind == "b":
        array[...] = rng.integers(0, 2, shape, np.uint8)
    elif dtype.itemsize in (4, 8):
        rng.random(dtype=dtype.type, out=array)
        if domain != (0, 1):
            array *= high - low
            array += low
    else:
        array[...] = rng.random(shape, np.float32) * (high - low) + low
    return array


def _for_each(name: str, given: Any, count: int, is_several: Callable[[Any], bool]) -> list[Any]:
    if not is_several(given):
        return [given] * count
    if len(given) != count:
        raise ConfigError(f"FakeData: there are {len(given)} values of {name} for {count} shapes")
    return list(given)


def _is_several_dtypes(given: Any) -> bool:
    return isinstance(given, (list, tuple))


def _is_several_domains(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and all(isinstance(each, (list, tuple)) for each in given)


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, Sequence) or not all(isinstance(side, (int, np.integer)) and side >= 0 for side in shape):
        raise ConfigError(
            f"FakeData: shapes must have one shape for each component, such as [(224, 224, 3), ()]; {shape!r} is none"
        )
    return tuple(int(side) for side in shape)


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise ConfigError(f"FakeData: {dtype!r} is no dtype") from error
    if found.kind not in "biuf":
        raise ConfigError(f"FakeData: dtype must be one of booleans, integers or floating-point numbers, not {found}")
    return found


def _domain(domain: Any) -> tuple[Any, Any]:
    if not (isinstance(domain, (list, tuple)) and len(domain) == 2 and domain[0] < domain[1]):
        raise ConfigError(f"FakeData: domain must be a pair of numbers, the first below the second, not {domain!r}")
    return tuple(domain)
