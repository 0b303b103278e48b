"""Data flows that apply a function in worker threads or processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import tpk.dataflow
from tpk.argument_checks import check_at_least, given
from tpk.errors import ConfigError
from tpk_tensorpack.dataflow.base import DataFlow, ProxyDataFlow, with_older_names
from tpk_tensorpack.dataflow.common import BatchData, OnCopy

__all__ = [
    "MultiProcessMapAndBatchData",
    "MultiProcessMapAndBatchDataZMQ",
    "MultiProcessMapData",
    "MultiProcessMapDataZMQ",
    "MultiThreadMapData",
    "ThreadedMapData",
]

Function = Callable[[Any], Any]


class _ParallelMap:
    """First base class of the maps: they keep the length of the given data flow, and are infinite unless `strict`."""

    def __init__(
        self, ds: Iterable[Any], number: int | None, map_func: Function | None, buffer_size: int, strict: bool
    ) -> None:
        if number is None or map_func is None:
            raise ConfigError(f"{type(self).__name__} takes the number of workers and map_func= (what they run)")
        source = ds if strict else tpk.dataflow.RepeatedData(ds, -1)
        func = OnCopy(map_func) if callable(map_func) else map_func
        super().__init__(source, number, func, buffer_size)  # type: ignore[call-arg]
        self._mapped = ds

    def __len__(self) -> int:
        return len(self._mapped)

    @property
    def ds(self) -> Any:
        """The data flow whose datapoints are mapped."""
        return self._mapped


class MultiThreadMapData(_ParallelMap, tpk.dataflow.MultiThreadMapData, ProxyDataFlow):
    """`MapData` with a function that runs in threads; the order of datapoints is preserved.

    Args:
        ds: the data flow.
        num_thread: the number of threads.
        map_func: takes a shallow copy of the datapoint, which it may change; returns a datapoint, or None to drop it.
        buffer_size: the maximum number of datapoints in flight.
        strict: whether an iteration ends with the data flow. Otherwise it is infinite, and continues into the next pass
            without waiting for the end of the current one.

    Raises:
        ConfigError: `num_thread` or `map_func` is missing or invalid.
    """

    @with_older_names
    def __init__(
        self,
        ds: Iterable[Any],
        num_thread: int | None = None,
        map_func: Function | None = None,
        *,
        buffer_size: int = 200,
        strict: bool = False,
    ) -> None:
        super().__init__(ds, num_thread, map_func, buffer_size, strict)


ThreadedMapData = MultiThreadMapData


class MultiProcessMapData(_ParallelMap, tpk.dataflow.MultiProcessMapData, ProxyDataFlow):
    """`MapData` with a function that runs in worker processes; the order of datapoints is preserved.

    Datapoints are passed through shared memory; the workers are fresh processes.

    Args:
        ds: the data flow.
        num_proc: the number of processes.
        map_func: takes a datapoint; returns a datapoint, or None to drop it.
        buffer_size: the maximum number of datapoints in flight.
        strict: whether an iteration ends with the data flow. Otherwise it is infinite, and continues into the next pass
            without waiting for the end of the current one.

    Raises:
        ConfigError: `num_proc` or `map_func` is missing or invalid.
    """

    @with_older_names
    def __init__(
        self,
        ds: Iterable[Any],
        num_proc: int | None = None,
        map_func: Function | None = None,
        *,
        buffer_size: int = 200,
        strict: bool = False,
    ) -> None:
        super().__init__(ds, num_proc, map_func, buffer_size, strict)


MultiProcessMapDataZMQ = MultiProcessMapData


class MultiProcessMapAndBatchData(_ParallelMap, tpk.dataflow.MultiProcessMapData, ProxyDataFlow):
    """Apply a function to each datapoint and batch the results, both in worker processes.

    An iteration is infinite: it continues into the next pass over the data flow.

    Args:
        ds: the data flow.
        num_proc: the number of processes.
        map_func: takes a datapoint; returns a datapoint, or None to drop it.
        batch_size: the number of datapoints in a batch.
        buffer_size: the maximum number of datapoints in flight; by default ten batches.
    """

    @with_older_names
    def __init__(
        self, ds: Iterable[Any], num_proc: int, map_func: Function, batch_size: int, buffer_size: int | None = None
    ) -> None:
        check_at_least(self, 1, batch_size=batch_size, **given(buffer_size=buffer_size))
        groups = _Groups(tpk.dataflow.RepeatedData(ds, -1), batch_size)
        under_way = max((buffer_size or 10 * batch_size) // batch_size, 1)
        super().__init__(groups, num_proc, _MapAndBatch(OnCopy(map_func), batch_size), under_way, strict=True)
        self._mapped = ds
        self.batch_size = batch_size

    def __len__(self) -> int:
        return super().__len__() // self.batch_size


MultiProcessMapAndBatchDataZMQ = MultiProcessMapAndBatchData


class _Groups(tpk.dataflow.StatefulProxyDataFlow, DataFlow):
    """Lists of consecutive datapoints."""

    def __init__(self, flow: Iterable[Any], group_size: int) -> None:
        super().__init__(flow)
        self.group_size = group_size

    def __iter__(self) -> Iterator[Any]:
        datapoints = iter(self.upstream)
        while group := list(islice(datapoints, self.group_size)):
            yield group


class _MapAndBatch:
    """Maps a list of datapoints in a worker; if some are dropped, keeps the rest for the next batch."""

    def __init__(self, func: Function, batch_size: int) -> None:
        self.func, self.batch_size = func, batch_size
        self._mapped: list[Any] = []

    def __call__(self, group: list[Any]) -> Any:
        self._mapped += [mapped for mapped in map(self.func, group) if mapped is not None]
        if len(self._mapped) < self.batch_size:
            return None
        batch, self._mapped = self._mapped[: self.batch_size], self._mapped[self.batch_size :]
        return BatchData.aggregate_batch(batch)
