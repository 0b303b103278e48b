"""Data flows that change what others deliver."""

from __future__ import annotations

import copy
import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import tpk.dataflow
from tpk.checks import check_at_least
from tpk.dataflow.base import may_refill
from tpk.dataflow.combine import check_distinct
from tpk.dataflow.memory import copy_arrays
from tpk.dataflow.transforms.batch import Joiner
from tpk.errors import ConfigError, InputError
from tpk_tensorpack.dataflow.base import (
    DataFlow,
    DrawsFromRandomState,
    LengthUnknownError,
    ProxyDataFlow,
    RNGDataFlow,
    random_state,
    set_random_state,
)
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.utils import get_rng, get_tqdm

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
    """Measure how fast a data flow is, with a progress bar, before its first pass; then deliver it.

    Args:
        ds: the data flow.
        size: how many datapoints are measured.
        warmup: how many are taken before that.

    Raises:
        ConfigError: a number is none.
    """

    refills_arrays = None

    __test__ = False  # it is no test for pytest to collect

    def __init__(self, ds: Iterable[Any], size: int = 5000, warmup: int = 0) -> None:
        super().__init__(ds)
        check_at_least(self, 1, size=size)
        check_at_least(self, 0, warmup=warmup)
        self.test_size = size
        self.warmup = warmup
        self._is_ready = self._has_measured = False

    def reset_state(self) -> None:
        """Make the data flow ready, unless it is."""
        if not self._is_ready:
            self._is_ready = True
            super().reset_state()

    def start(self) -> None:
        """Measure now.

        Raises:
            InputError: there are no datapoints.
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
    """Log what the first datapoints look like: shapes, dtypes and ranges; all pass through.

    Args:
        ds: the data flow.
        num: how many datapoints.
        name: what the log calls it.
        max_depth: how many levels of lists are shown.
        max_list: how many items of each.

    Example:
        ```
        Contents of DataFlow (train):
        datapoint 0/1 with 2 components consists of
          0: ndarray:uint8 of shape (28, 28) in range [0, 255]
          1: int with value 5
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
        for key, value in items:
            lines += _described(key, value, 1, self.max_depth, self.max_list)
        return "\n".join(lines)


def _described(key: Any, value: Any, depth: int, max_depth: int, max_list: int) -> list[str]:
    begin = f"{'  ' * depth}{key}: {type(value).__name__}"
    if isinstance(value, (list, tuple)):
        lines, inner = [f"{begin} of len {len(value)}"], "  " * (depth + 1)
        if depth >= max_depth:
            return [*lines, f"{inner} ..."] if value else lines
        for number, item in enumerate(value[:max_list]):
            lines += _described(number, item, depth + 1, max_depth, max_list)
        return [*lines, f"{inner}..."] if len(value) > max_list else lines
    if isinstance(value, np.ndarray):
        described = f"{begin}:{value.dtype} of shape {value.shape}"
        if value.size and value.dtype.kind in "biuf":
            described += f" in range [{value.min()}, {value.max()}]"
        return [described]
    is_shown = isinstance(value, (bool, int, float, complex, str, bytes, np.generic))
    return [f"{begin} with value {value}" if is_shown else begin]


class BatchData(tpk.dataflow.BatchData, ProxyDataFlow):
    """Put each `batch_size` consecutive datapoints together; see `tpk.dataflow.BatchData`.

    A component has the dtype of its first value; Python's integers and booleans become int32, floats float32.

    Args:
        ds: the data flow.
        batch_size: how many.
        remainder: whether the last ones make a smaller batch if they are fewer; otherwise they are dropped.
        use_list: whether a component of a batch is the list of the values instead of an array.
    """

    def __init__(self, ds: Iterable[Any], batch_size: int, remainder: bool = False, use_list: bool = False) -> None:
        super().__init__(ds, batch_size, remainder, use_list)

    def joiner(self) -> Joiner:
        """Return what joins the datapoints of a batch."""
        return _Joiner("BatchData", self.use_list, self._allocate)

    @staticmethod
    def aggregate_batch(data_holder: Sequence[Any], use_list: bool = False) -> Any:
        """Return the batch of some datapoints.

        Args:
            data_holder: the datapoints: all lists or all dicts.
            use_list: whether a component of the batch is a list instead of an array.

        Raises:
            InputError: they do not fit together.
        """
        return _Joiner("aggregate_batch", use_list).join(data_holder, range(len(data_holder)))


class _Joiner(Joiner):
    """Makes batches whose components have the dtypes of their first values."""

    def check(self, component: Any, array: np.ndarray[Any, Any], first: np.ndarray[Any, Any], number: int) -> None:
        if array.shape != first.shape:
            super().check(component, array, first, number)

    def combine(self, component: Any, values: Sequence[Any]) -> Any:
        dtype = getattr(values[0], "dtype", _DTYPES.get(type(values[0])))
        if dtype is None:
            return super().combine(component, values)
        if np.ndim(values[0]):
            joined = super().combine(component, values)
            return joined if dtype.kind in "SUO" else joined.astype(dtype, copy=False)
        try:
            return np.array(values, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{self.owner}: component {component!r} is {values[0]!r} in the first datapoint of a batch, so it "
                f"is of {np.dtype(dtype)}, which not all others are ({error}); give it the dtype that you want by "
                "numpy.asarray, or batch with use_list=True"
            ) from error


_DTYPES = {bool: np.int32, int: np.int32, float: np.float32}


class BatchDataByShape(tpk.dataflow.BatchDataByShape, ProxyDataFlow):
    """Put `batch_size` datapoints together whose component `idx` has the same shape, as soon as there are as many.

    Args:
        ds: the data flow.
        batch_size: how many.
        idx: the index or the key of the component whose shape counts.
    """

    def __init__(self, ds: Iterable[Any], batch_size: int, idx: int | str) -> None:
        super().__init__(ds, batch_size, idx)

    def __len__(self) -> int:
        return len(self.ds) // self.batch_size

    aggregate_batch = staticmethod(BatchData.aggregate_batch)

    def joiner(self) -> Joiner:
        """Return what joins the datapoints of a batch."""
        return _Joiner("BatchDataByShape", False, self._allocate)


class FixedSizeData(tpk.dataflow.FixedSizeData, ProxyDataFlow):
    """Deliver `size` datapoints a pass: of a longer data flow some, a shorter one several times.

    Args:
        ds: the data flow.
        size: how many.
        keep_state: whether a pass goes on where the one before stopped.
    """

    def __init__(self, ds: Iterable[Any], size: int, keep_state: bool = True) -> None:
        super().__init__(ds, size, keep_state)


class MapData(tpk.dataflow.MapData, ProxyDataFlow):
    """Apply a function to each datapoint; where it returns None, the datapoint is dropped.

    Args:
        ds: the data flow.
        func: takes a datapoint, a shallow copy that it may change; returns a datapoint or None.
    """

    def __init__(self, ds: Iterable[Any], func: Function) -> None:
        super().__init__(ds, OnCopy(func) if callable(func) else func)


class OnCopy:
    """A function of a datapoint, given a shallow copy of it: of the items of a list that pass by again and again.

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
        func: takes the component, returns the new one or None.
        index: the index of the component in a list, or its key in a dict.
    """

    def __init__(self, ds: Iterable[Any], func: Function, index: int | str = 0) -> None:
        tpk.dataflow.MapDataComponent.__init__(self, ds, func, index)
        self.index = index


class SelectComponent(MapData):
    """Deliver some components of each datapoint, as a list, in the order that is given.

    Args:
        ds: the data flow.
        idxs: indices of a list, or keys of a dict.
    """

    refills_arrays = None

    def __init__(self, ds: Iterable[Any], idxs: Sequence[int | str]) -> None:
        super().__init__(ds, lambda datapoint: [datapoint[index] for index in idxs])
        self.idxs = idxs


class RepeatedData(tpk.dataflow.RepeatedData, ProxyDataFlow):
    """Deliver all datapoints of a data flow, then all again, `num` times over.

    Args:
        ds: the data flow.
        num: how many times; -1 is forever.
    """

    def __init__(self, ds: Iterable[Any], num: int) -> None:
        super().__init__(ds, num)

    def __len__(self) -> int:
        if self.num == -1:
            raise LengthUnknownError("RepeatedData has no length: it repeats forever")
        return super().__len__()


class RepeatedDataPoint(tpk.dataflow.RepeatedDataPoint, ProxyDataFlow):
    """Deliver each datapoint `num` times, one after the other.

    Args:
        ds: the data flow.
        num: how many times.
    """

    def __init__(self, ds: Iterable[Any], num: int) -> None:
        super().__init__(ds, num)


class RandomChooseData(DrawsFromRandomState, tpk.dataflow.RandomChooseData, RNGDataFlow):
    """Deliver a datapoint of a data flow that is drawn at random each time, until that one has no more.

    Args:
        df_lists: data flows, or pairs of a data flow and its probability.
    """

    def __init__(self, df_lists: Sequence[Any]) -> None:
        super().__init__(_distinct(df_lists))
        self.df_lists = self.sources
        self._bounds = (np.cumsum(self.probabilities) / np.sum(self.probabilities)).tolist()

    def _choices(self, rng: Any, begin: int) -> Iterator[int]:
        rng.random_sample(begin)
        while True:
            yield bisect_right(self._bounds, rng.random_sample())


class RandomMixData(DrawsFromRandomState, tpk.dataflow.RandomMixData, RNGDataFlow):
    """Deliver the datapoints of several data flows in random turns, so that a pass has each of them once.

    Args:
        df_lists: data flows, each with a length.
    """

    def __init__(self, df_lists: Sequence[Any]) -> None:
        super().__init__(_distinct(df_lists))
        self.df_lists = self.sources


class JoinData(tpk.dataflow.JoinData, DataFlow):
    """Make one datapoint of one of each data flow: all their components, one after the other, until one has no more.

    Args:
        df_lists: data flows: all of lists, or all of dicts. One may occur several times; it is iterated as often then.
    """

    def __init__(self, df_lists: Sequence[Any]) -> None:
        super().__init__(_distinct(df_lists))
        self.df_lists = self.sources


class ConcatData(tpk.dataflow.ConcatData, DataFlow):
    """Deliver the datapoints of one data flow after those of another.

    Args:
        df_lists: data flows.
    """

    def __init__(self, df_lists: Sequence[Any]) -> None:
        super().__init__(_distinct(df_lists))
        self.df_lists = self.sources


def _distinct(flows: Sequence[Any]) -> list[Any]:
    """Return the flows; if one occurs twice, or in what two stand on, such whose place in a pass is counted."""
    flows = list(flows)
    bare = [flow[0] if isinstance(flow, tuple) else flow for flow in flows]
    try:
        check_distinct(bare, "")
    except ConfigError:
        counted = [_Counted(flow) for flow in bare]
        return [(one, *flow[1:]) if isinstance(flow, tuple) else one for one, flow in zip(counted, flows, strict=True)]
    return flows


class _Counted(DataFlow):
    """Delivers what a flow does, whose own position is not asked for: several iterate it at a time."""

    refills_arrays = True

    def __init__(self, flow: Any) -> None:
        self.flow = flow

    def __iter__(self) -> Iterator[Any]:
        return iter(self.flow)

    def __len__(self) -> int:
        return len(self.flow)

    def reset_state(self) -> None:
        """Make the flow ready."""
        self.flow.reset_state()


class LocallyShuffleData(tpk.dataflow.StatefulProxyDataFlow, ProxyDataFlow, RNGDataFlow):
    """Shuffle within a buffer, from which the oldest datapoint is delivered when another one comes in. It never ends.

    A resumed run goes on with the datapoints that had not been in the buffer; those that were in it are lost.

    Args:
        ds: the data flow.
        buffer_size: how many datapoints are held back.
        num_reuse: how many times each of them goes into the buffer.
        shuffle_interval: how many datapoints come in between two shuffles; by default a third of the buffer.

    Raises:
        ConfigError: a number is below 1.
        InputError: the data flow has no datapoint.
    """

    refills_arrays = False

    def __init__(
        self, ds: Iterable[Any], buffer_size: int, num_reuse: int = 1, shuffle_interval: int | None = None
    ) -> None:
        super().__init__(ds)
        check_at_least(self, 1, buffer_size=buffer_size, num_reuse=num_reuse, shuffle_interval=shuffle_interval)
        self.buffer_size = buffer_size
        self.num_reuse = num_reuse
        self.shuffle_interval = shuffle_interval or max(buffer_size // 3, 1)
        self._loaded: Any = None

    def __len__(self) -> int:
        return len(self.ds) * self.num_reuse

    def reset_state(self) -> None:
        """Begin with other random numbers; make the data flow ready."""
        self.rng = get_rng(self)
        self.ds.reset_state()

    def __iter__(self) -> Iterator[Any]:
        goes_on = self._loaded is not None
        self.begin()
        if self.rng is None:
            self.rng = get_rng(self)
        if goes_on:
            set_random_state(self.rng, self._loaded)
            self._loaded = None
            logger.info("LocallyShuffleData goes on with an empty buffer, which it fills anew")
        buffer: deque[Any] = deque()
        for number, datapoint in enumerate(self._endless(), 1):
            if number % self.shuffle_interval == 0:
                shuffled = list(buffer)
                self.rng.shuffle(shuffled)
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

    def state_dict(self) -> dict[str, Any]:
        """Return where the data flow beneath stands, and the random numbers."""
        drawn = random_state(self.rng) if self._loaded is None and self.rng is not None else self._loaded
        return {**super().state_dict(), "rng": drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there."""
        super().load_state_dict(state)
        self._loaded = state["rng"]


class CacheData(DrawsFromRandomState, tpk.dataflow.CacheData, ProxyDataFlow):
    """Keep all datapoints of the first pass in memory, and deliver them in every pass from then on.

    Args:
        ds: the data flow.
        shuffle: whether each pass but the first has a random order of its own.
    """

    rng: Any = None

    def __init__(self, ds: Iterable[Any], shuffle: bool = False) -> None:
        super().__init__(ds, shuffle)
