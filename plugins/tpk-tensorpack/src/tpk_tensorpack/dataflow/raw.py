"""Sources of datapoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import tpk.dataflow
from tpk_tensorpack.dataflow.base import DataFlow, DrawsFromRandomState, RNGDataFlow
from tpk_tensorpack.errors import CheckError

__all__ = ["DataFromGenerator", "DataFromIterable", "DataFromList", "DataFromQueue", "FakeData"]


class DataFromList(DrawsFromRandomState, tpk.dataflow.DataFromList, RNGDataFlow):
    """The items of a list; see `tpk.dataflow.DataFromList`.

    Args:
        lst: the list.
        shuffle: whether to shuffle before each pass.
    """

    def __init__(self, lst: Sequence[Any], shuffle: bool = True) -> None:
        super().__init__(lst, shuffle)

    @property
    def lst(self) -> Any:
        """The list."""
        return self.items


class ArrayRows(DataFromList):
    """The rows of several arrays of equal length; each iteration delivers new lists.

    Args:
        arrays: the arrays, one for each component.
        shuffle: whether to shuffle before each pass.

    Raises:
        InputError: they have different lengths.
    """

    def __init__(self, arrays: Sequence[Any], shuffle: bool) -> None:
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) != 1:
            raise CheckError(f"{type(self).__name__}: expected arrays of equal length; these have {lengths} rows")
        super().__init__(_Rows(arrays), shuffle)  # type: ignore[arg-type]  # it has a length and `[]`


class _Rows:
    refills_arrays = False

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._arrays[0])

    def __getitem__(self, index: int) -> list[Any]:
        return [array[index] for array in self._arrays]


class FakeData(DrawsFromRandomState, tpk.dataflow.FakeData, RNGDataFlow):
    """Arrays of given shapes; see `tpk.dataflow.FakeData`.

    Args:
        shapes: the shape of each component; also a `tf.TensorShape`.
        size: the number of datapoints in a pass.
        random: whether to generate each datapoint anew; otherwise a pass repeats the same one.
        dtype: the dtype of all components, or a list with one for each.
        domain: the range ``(low, high)`` of the values, without `high` itself, or a list with one for each component.
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        size: int = 1000,
        random: bool = True,
        dtype: Any = "float32",
        domain: Any = (0, 1),
    ) -> None:
        super().__init__([[getattr(n, "value", n) for n in shape] for shape in shapes], size, random, dtype, domain)

    def __iter__(self) -> Iterator[Any]:
        begin = self.begin() or 0
        rng = self.epoch_rng()
        datapoint: list[Any] = []
        for number in range(self._size):
            if self.random or not datapoint:
                datapoint = self._draw(rng)
            if number >= begin:
                self.place = number + 1
                yield datapoint
        self.place = None

    def _draw(self, rng: np.random.RandomState) -> list[Any]:
        components = zip(self.shapes, self.dtypes, self.domains, strict=True)
        return [
            np.asarray(rng.rand(*shape) * (high - low) + low).astype(dtype) for shape, dtype, (low, high) in components
        ]


class DataFromQueue(tpk.dataflow.DataFromQueue, DataFlow):
    """Datapoints from a queue; see `tpk.dataflow.DataFromQueue`.

    Args:
        queue: an object with ``get(timeout=...)``.
    """


class DataFromGenerator(tpk.dataflow.DataFromGenerator, DataFlow):
    """Datapoints from a generator function or an iterable; see `tpk.dataflow.DataFromGenerator`.

    Args:
        gen: a function without arguments that returns an iterable and is called by each pass; or an iterable.
    """

    def __init__(self, gen: Callable[[], Iterable[Any]] | Iterable[Any]) -> None:
        super().__init__(gen)


class DataFromIterable(tpk.dataflow.DataFromIterable, DataFlow):
    """Datapoints from an iterable; see `tpk.dataflow.DataFromIterable`.

    Args:
        iterable: an iterable of datapoints.
    """
