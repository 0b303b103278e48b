"""Data flows that transform other data flows."""

from __future__ import annotations

import copy
import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import tpk.dataflow
from tpk.argument_checks import check_at_least, given
from tpk.dataflow import FEW_BYTES, Joiner, aligned_empty, copy_arrays, describe
from tpk.dataflow.base import may_refill
from tpk.errors import ConfigError, InputError
from tpk_tensorpack.dataflow.base import (
    DataFlow,
    DrawsFromRandomState,
    LengthUnknownError,
    ProxyDataFlow,
    RNGDataFlow,
)
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.utils import get_tqdm

__all__ = [
    "BatchData",
    "BatchDataByShape",
    "CacheData",
    "ConcatData",
    "FixedSizeData",
    "JoinData",
    "LocallyShuffleData",
    "MapData",
    "MapDataComponent",
    "PrintData",
    "RandomChooseData",
    "RandomMixData",
    "RepeatedData",
    "RepeatedDataPoint",
    "SelectComponent",
    "TestDataSpeed",
]

Function = Callable[[Any], Any]


class TestDataSpeed(tpk.dataflow.StatefulProxyDataFlow, ProxyDataFlow):
    """Measure the speed of a data flow before its first pass, with a progress bar; then deliver it.

    Args:
        ds: the data flow.
        size: the number of datapoints to measure.
        warmup: the number of datapoints to skip first.

    Raises:
        ConfigError: a number is invalid.
    """

    refills_arrays = None

    __test__ = False  # not a test class, despite its name

    def __init__(self, ds: Iterable[Any], size: int = 5000, warmup: int = 0) -> None:
        super().__init__(ds)
        check_at_least(self, 1, size=size)
        check_at_least(self, 0, warmup=warmup)
        self.test_size = size
        self.warmup = warmup
        self._is_ready = self._has_measured = False

    def reset_state(self) -> None:
        """Reset the data flow unless it has been reset."""
        if not self._is_ready:
            self._is_ready = True
            super().reset_state()

    def start(self) -> None:
        """Run the measurement now.

        Raises:
            InputError: the data flow is empty.
        """
        self.reset_state()
        self._has_measured = True
        datapoints = self._endless()
        for count, name in ((self.warmup, "warm-up"), (self.test_size, "speed")):
            if count:
                for _ in get_tqdm(itertools.islice(datapoints, count), total=count, desc=name):
                    pass
        datapoints.close()

    def _endless(self) -> Any:
        for number in itertools.count():
            delivered = False
            for _ in self.flow:
                delivered = True
                yield None
            if not delivered:
                raise InputError(f"TestDataSpeed: pass {number} of {type(self.flow).__name__} has no datapoint")

    def __iter__(self) -> Iterator[Any]:
        if not self._has_measured:
            self.start()
        yield from self.upstream


class PrintData(tpk.dataflow.StatefulProxyDataFlow, ProxyDataFlow):
    """Log the shapes, dtypes and ranges of the first datapoints; pass all datapoints through.

    Args:
        ds: the data flow.
        num: the number of datapoints to log.
        name: the name of the data flow in the log.
        max_depth: the number of nested levels to show.
        max_list: the number of items to show per level.

    Example:
        ```
        Contents of DataFlow (train):
        datapoint 0/1 with 2 components consists of
          0: array of uint8, shape (28, 28), from 0 to 255
          1: int: 5
        ```
    """

    refills_arrays = None

    def __init__(
        self, ds: Iterable[Any], num: int = 1, name: str | None = None, max_depth: int = 3, max_list: int = 3
    ) -> None:
        super().__init__(ds)
        self.num = num
        self.name = name
        self.max_depth = max_depth
        self.max_list = max_list
        self.cnt = 0

    def __iter__(self) -> Iterator[Any]:
        for datapoint in self.upstream:
            if self.cnt < self.num:
                if self.cnt == 0:
                    logger.info("Contents of DataFlow%s:", "" if self.name is None else f" ({self.name})")
                logger.info("%s", self._describe(datapoint))
                self.cnt += 1
            yield datapoint

    def _describe(self, datapoint: Any) -> str:
        items = datapoint.items() if isinstance(datapoint, Mapping) else enumerate(datapoint)
        lines = [f"datapoint {self.cnt}/{self.num} with {len(datapoint)} components consists of"]
        lines += [f"{key}: {describe(value, self.max_depth - 1, self.max_list)}" for key, value in items]
        return "\n".join(lines).replace("\n", "\n  ")


class BatchData(tpk.dataflow.BatchData, ProxyDataFlow):
    """Batch `batch_size` consecutive datapoints; see `tpk.dataflow.BatchData`.

    Each component gets the dtype of its first value; Python integers and booleans become int32, floats float32. If that
    is a masked array, it is an error; masks of later values are lost, as in tensorpack.

    Args:
        ds: the data flow.
        batch_size: the number of datapoints in a batch.
        remainder: whether to deliver a smaller last batch; otherwise the remaining datapoints are dropped.
        use_list: whether each component of a batch is a list of values instead of an array.
    """

    def __init__(self, ds: Iterable[Any], batch_size: int, remainder: bool = False, use_list: bool = False) -> None:
        super().__init__(ds, batch_size, remainder, use_list)

    def joiner(self) -> Joiner:
        """Return the function that joins the datapoints of a batch."""
        return _Joiner("BatchData", self.use_list, self._allocate)

    @staticmethod
    def aggregate_batch(data_holder: Sequence[Any], use_list: bool = False) -> Any:
        """Join datapoints into a batch.

        Args:
            data_holder: the datapoints: all lists or all dicts.
            use_list: whether a component of the batch is a list instead of an array.

        Raises:
            InputError: the datapoints do not fit together.
        """
        return _Joiner("aggregate_batch", use_list).join(data_holder, 0)


class _Joiner(Joiner):
    """Joins datapoints into batches whose components have the dtypes of their first values."""

    def check(self, component: Any, array: np.ndarray[Any, Any], first: np.ndarray[Any, Any], number: int) -> None:
        if array.shape != first.shape:
            super().check(component, array, first, number)

    @staticmethod
    def stack(values: Sequence[Any], array: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        first = values[0]
        dtype = _DTYPES.get(type(first))
        if dtype is None:
            if type(first) is not np.ndarray and not isinstance(first, np.generic):
                raise TypeError
            dtype = first.dtype
            if dtype.kind in "SUO":
                raise TypeError
            if array is None and len(values) * first.nbytes > FEW_BYTES:
                array = aligned_empty((len(values), *first.shape), dtype)
        if array is None:
            return np.array(values, dtype)
        array[...] = values
        return array

    def combine(self, component: Any, values: Sequence[Any]) -> Any:
        first = values[0]
        dtype = _DTYPES.get(type(first), getattr(first, "dtype", None))
        if dtype is None or dtype.kind in "SUO":
            return super().combine(component, values)
        if isinstance(first, np.ndarray):
            return super().combine(component, values).astype(dtype, copy=False)
        raise InputError(
            f"{self.owner}: component {component!r} has values that do not fit into {dtype}, the dtype of the first, "
            f"{first!r}; convert them by numpy.asarray, or batch with use_list=True"
        )


_DTYPES = {bool: np.dtype(np.int32), int: np.dtype(np.int32), float: np.dtype(np.float32)}


class BatchDataByShape(tpk.dataflow.BatchDataByShape, ProxyDataFlow):
    """Batch datapoints whose component `idx` has the same shape, as soon as there are `batch_size` of them.

    Datapoints that are left at the end of a pass become part of the next one, until `reset_state`.

    Args:
        ds: the data flow.
        batch_size: the number of datapoints in a batch.
        idx: the index or key of the component whose shape is compared.
    """

    def __init__(self, ds: Iterable[Any], batch_size: int, idx: int | str) -> None:
        super().__init__(ds, batch_size, idx)
        self.holder = super().new_groups()

    def __len__(self) -> int:
        return len(self.ds) // self.batch_size

    def reset_state(self) -> None:
        """Drop the datapoints that are left, and reset the data flow beneath."""
        super().reset_state()
        self.holder = super().new_groups()

    def new_groups(self) -> Any:
        """Return the groups of datapoints that the previous pass left."""
        return self.holder

    aggregate_batch = staticmethod(BatchData.aggregate_batch)

    def joiner(self) -> Joiner:
        """Return the function that joins the datapoints of a batch."""
        return _Joiner("BatchDataByShape", False, self._allocate)


class FixedSizeData(tpk.dataflow.FixedSizeData, ProxyDataFlow):
    """Deliver `size` datapoints per pass: truncate a longer data flow, or repeat a shorter one.

    Args:
        ds: the data flow.
        size: the number of datapoints in a pass.
        keep_state: whether each pass continues where the previous one stopped.
    """

    def __init__(self, ds: Iterable[Any], size: int, keep_state: bool = True) -> None:
        super().__init__(ds, size, keep_state)


class MapData(tpk.dataflow.MapData, ProxyDataFlow):
    """Apply a function to each datapoint; where it returns None, the datapoint is dropped.

    Args:
        ds: the data flow.
        func: takes a shallow copy of the datapoint, which it may change; returns a datapoint or None.
    """

    def __init__(self, ds: Iterable[Any], func: Function) -> None:
        super().__init__(ds, OnCopy(func) if callable(func) else func)


class OnCopy:
    """Applies a function to a shallow copy of each datapoint, because a list delivers the same items again and again.

    Args:
        func: the function.
    """

    def __init__(self, func: Function) -> None:
        self.func = func
        self.__qualname__ = getattr(func, "__qualname__", type(func).__name__)

    def __call__(self, datapoint: Any) -> Any:
        """Call the function."""
        return self.func(copy.copy(datapoint))


class MapDataComponent(tpk.dataflow.MapDataComponent, MapData):
    """Apply a function to one component of each datapoint; where it returns None, the datapoint is dropped.

    Args:
        ds: the data flow.
        func: takes the component; returns the new component or None.
        index: the index of the component in a list, or its key in a dict.
    """

    def __init__(self, ds: Iterable[Any], func: Function, index: int | str = 0) -> None:
        tpk.dataflow.MapDataComponent.__init__(self, ds, func, index)
        self.index = index


class SelectComponent(MapData):
    """Select components of each datapoint and deliver them as a list, in the given order.

    Args:
        ds: the data flow.
        idxs: indices into a list, or keys of a dict.
    """

    refills_arrays = None

    def __init__(self, ds: Iterable[Any], idxs: Sequence[int | str]) -> None:
        super().__init__(ds, lambda datapoint: [datapoint[index] for index in idxs])
        self.idxs = idxs


class RepeatedData(tpk.dataflow.RepeatedData, ProxyDataFlow):
    """Repeat a data flow `num` times.

    Args:
        ds: the data flow.
        num: the number of passes; -1 repeats forever.
    """

    def __init__(self, ds: Iterable[Any], num: int) -> None:
        super().__init__(ds, num)

    def __len__(self) -> int:
        if self.num == -1:
            raise LengthUnknownError("RepeatedData has no length: it repeats forever")
        return super().__len__()


class RepeatedDataPoint(tpk.dataflow.RepeatedDataPoint, ProxyDataFlow):
    """Repeat each datapoint `num` times in a row.

    Args:
        ds: the data flow.
        num: the number of repetitions.
    """

    def __init__(self, ds: Iterable[Any], num: int) -> None:
        super().__init__(ds, num)


class _OfSeveral:
    """First base class of flows on top of several flows."""

    def __init__(self, df_lists: Sequence[Any]) -> None:
        super().__init__(_distinct(df_lists))
        self.df_lists = self.sources


class RandomChooseData(_OfSeveral, DrawsFromRandomState, tpk.dataflow.RandomChooseData, RNGDataFlow):
    """Deliver datapoints from randomly chosen data flows until the chosen one is exhausted.

    Args:
        df_lists: data flows, or pairs of a data flow and its probability.
    """

    def __init__(self, df_lists: Sequence[Any]) -> None:
        super().__init__(df_lists)
        self._bounds = (np.cumsum(self.probabilities) / np.sum(self.probabilities)).tolist()

    def _choices(self, rng: Any, begin: int) -> Iterator[int]:
        rng.random_sample(begin)
        while True:
            yield bisect_right(self._bounds, rng.random_sample())


class RandomMixData(_OfSeveral, DrawsFromRandomState, tpk.dataflow.RandomMixData, RNGDataFlow):
    """Interleave several data flows at random; a pass delivers each of their datapoints once.

    Args:
        df_lists: data flows, each with a length.
    """


class JoinData(_OfSeveral, tpk.dataflow.JoinData, DataFlow):
    """Join one datapoint of each data flow by concatenating their components, until one flow is exhausted.

    Args:
        df_lists: data flows: all of lists, or all of dicts. A flow that occurs several times is iterated separately.
    """


class ConcatData(_OfSeveral, tpk.dataflow.ConcatData, DataFlow):
    """Concatenate data flows.

    Args:
        df_lists: data flows.
    """


def _distinct(flows: Sequence[Any]) -> list[Any]:
    """Return the flows; wrap them to track their positions separately if two of them share a flow."""
    bare = [flow[0] if isinstance(flow, tuple) else flow for flow in flows]
    try:
        tpk.dataflow.ConcatData(bare)
    except ConfigError:
        counted = map(_Counted, bare)
        return [(one, *flow[1:]) if isinstance(flow, tuple) else one for one, flow in zip(counted, flows, strict=True)]
    return list(flows)


class _Counted(DataFlow):
    """Delivers the datapoints of a flow without asking for its position: several iterations share the flow."""

    refills_arrays = True

    def __init__(self, flow: Any) -> None:
        self.flow = flow

    def __iter__(self) -> Iterator[Any]:
        return iter(self.flow)

    def __len__(self) -> int:
        return len(self.flow)

    def reset_state(self) -> None:
        """Reset the flow."""
        self.flow.reset_state()


class LocallyShuffleData(DrawsFromRandomState, tpk.dataflow.StatefulProxyDataFlow, ProxyDataFlow, RNGDataFlow):
    """Shuffle within a buffer: each new datapoint replaces the oldest one, which is delivered. It never ends.

    A resumed run continues after the datapoints that were read into the buffer; those in the buffer are lost.

    Args:
        ds: the data flow.
        buffer_size: the number of datapoints in the buffer.
        num_reuse: how many times each datapoint enters the buffer.
        shuffle_interval: the number of new datapoints between two shuffles; by default a third of the buffer.

    Raises:
        ConfigError: a number is below 1.
        InputError: the data flow is empty.
    """

    refills_arrays = False

    def __init__(
        self, ds: Iterable[Any], buffer_size: int, num_reuse: int = 1, shuffle_interval: int | None = None
    ) -> None:
        super().__init__(ds)
        check_at_least(
            self, 1, buffer_size=buffer_size, num_reuse=num_reuse, **given(shuffle_interval=shuffle_interval)
        )
        self.buffer_size = buffer_size
        self.num_reuse = num_reuse
        self.shuffle_interval = shuffle_interval or max(buffer_size // 3, 1)

    def __len__(self) -> int:
        return len(self.ds) * self.num_reuse

    def __iter__(self) -> Iterator[Any]:
        self.begin()
        if self._loaded is not None:
            logger.info("LocallyShuffleData goes on with an empty buffer, which it fills anew")
        rng = self.epoch_rng()
        buffer: deque[Any] = deque()
        for number, datapoint in enumerate(self._endless(), 1):
            if number % self.shuffle_interval == 0:
                shuffled = list(buffer)
                rng.shuffle(shuffled)
                buffer = deque(shuffled)
            for _ in range(self.num_reuse):
                if len(buffer) == self.buffer_size:
                    yield buffer.popleft()
                buffer.append(datapoint)

    def _endless(self) -> Iterator[Any]:
        refills = may_refill(self.flow)
        while True:
            for datapoint in self.upstream:
                yield copy_arrays(datapoint) if refills else datapoint
            if not self.upstream.delivered:
                raise InputError(f"LocallyShuffleData: a pass of {type(self.flow).__name__} has no datapoint")


class CacheData(DrawsFromRandomState, tpk.dataflow.CacheData, ProxyDataFlow):
    """Keep the datapoints of the first pass in memory and deliver them in every later pass.

    Args:
        ds: the data flow.
        shuffle: whether to shuffle before each pass except the first.
    """

    rng: Any = None

    def __init__(self, ds: Iterable[Any], shuffle: bool = False) -> None:
        super().__init__(ds, shuffle)
