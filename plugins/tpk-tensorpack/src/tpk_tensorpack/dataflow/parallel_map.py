"""Data flows that apply a function in worker threads or processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import tpk.dataflow
from tpk.checks import check_at_least
from tpk.dataflow.parallel.maps import ParallelMap
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


class _ParallelMapData(ParallelMap, ProxyDataFlow):
    """Base of the maps: as long as the data flow that they were given, and without end unless they are strict."""

    _mapped: Any

    def __len__(self) -> int:
        return len(self._mapped)

    @property
    def ds(self) -> Any:
        """The data flow whose datapoints are mapped."""
        return self._mapped


class MultiThreadMapData(_ParallelMapData, tpk.dataflow.MultiThreadMapData):
    """As `MapData`, with a function that runs in threads; datapoints come in the order of the data flow.

    Args:
        ds: the data flow.
        num_thread: how many threads.
        map_func: takes a datapoint, a shallow copy that it may change; returns a datapoint, or None to drop it.
        buffer_size: how many datapoints are under way at most.
        strict: whether an iteration ends with the data flow. Otherwise it goes on with the next pass, without end, and
            does not wait for the end of one.

    Raises:
        ConfigError: `num_thread` or `map_func` is missing, or none.
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
        number, func = _needed("MultiThreadMapData", "num_thread", num_thread, map_func)
        source = ds if strict else tpk.dataflow.RepeatedData(ds, -1)
        tpk.dataflow.MultiThreadMapData.__init__(self, source, number, func, buffer_size)
        self._mapped = ds


ThreadedMapData = MultiThreadMapData


class MultiProcessMapData(_ParallelMapData, tpk.dataflow.MultiProcessMapData):
    """As `MapData`, with a function that runs in worker processes; datapoints come in the order of the data flow.

    They travel through shared memory; the workers are fresh processes.

    Args:
        ds: the data flow.
        num_proc: how many processes.
        map_func: takes a datapoint, returns a datapoint, or None to drop it.
        buffer_size: how many datapoints are under way at most.
        strict: whether an iteration ends with the data flow. Otherwise it goes on with the next pass, without end, and
            does not wait for the end of one.

    Raises:
        ConfigError: `num_proc` or `map_func` is missing, or none.
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
        number, func = _needed("MultiProcessMapData", "num_proc", num_proc, map_func)
        source = ds if strict else tpk.dataflow.RepeatedData(ds, -1)
        tpk.dataflow.MultiProcessMapData.__init__(self, source, number, func, buffer_size)
        self._mapped = ds


MultiProcessMapDataZMQ = MultiProcessMapData


class MultiProcessMapAndBatchData(_ParallelMapData, tpk.dataflow.MultiProcessMapData):
    """Apply a function to each datapoint, and put the results together as batches, both in worker processes.

    An iteration goes on with the next pass over the data flow, without end.

    Args:
        ds: the data flow.
        num_proc: how many processes.
        map_func: takes a datapoint, returns a datapoint, or None to drop it.
        batch_size: how many datapoints a batch has.
        buffer_size: how many datapoints are under way at most; by default those of ten batches.
    """

    @with_older_names
    def __init__(
        self, ds: Iterable[Any], num_proc: int, map_func: Function, batch_size: int, buffer_size: int | None = None
    ) -> None:
        owner = "MultiProcessMapAndBatchData"
        check_at_least(owner, 1, batch_size=batch_size, buffer_size=buffer_size)
        number, func = _needed(owner, "num_proc", num_proc, map_func)
        groups = _Groups(tpk.dataflow.RepeatedData(ds, -1), batch_size)
        under_way = max((buffer_size or 10 * batch_size) // batch_size, 1)
        tpk.dataflow.MultiProcessMapData.__init__(self, groups, number, _MapAndBatch(func, batch_size), under_way)
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
    """What a worker does with a list of datapoints; where some are dropped, it keeps the rest for the next batch."""

    def __init__(self, func: Function, batch_size: int) -> None:
        self.func, self.batch_size = func, batch_size
        self._mapped: list[Any] = []

    def __call__(self, group: list[Any]) -> Any:
        self._mapped += [mapped for mapped in map(self.func, group) if mapped is not None]
        if len(self._mapped) < self.batch_size:
            return None
        batch, self._mapped = self._mapped[: self.batch_size], self._mapped[self.batch_size :]
        return BatchData.aggregate_batch(batch)


def _needed(owner: str, name: str, number: int | None, map_func: Function | None) -> tuple[int, Function]:
    if number is None or map_func is None:
        raise ConfigError(f"{owner} takes {name}= and map_func=: how many work, and what they do")
    return number, OnCopy(map_func) if callable(map_func) else map_func
