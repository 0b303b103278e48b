"""Data flows that apply a function in worker threads or processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tpk.dataflow
from tpk.errors import ConfigError
from tpk_tensorpack.dataflow.base import ProxyDataFlow
from tpk_tensorpack.dataflow.common import BatchData, OnCopy

__all__ = [
    "MultiProcessMapAndBatchData",
    "MultiProcessMapAndBatchDataZMQ",
    "MultiProcessMapData",
    "MultiProcessMapDataZMQ",
    "MultiThreadMapData",
]

Function = Callable[[Any], Any]


class MultiThreadMapData(tpk.dataflow.MultiThreadMapData, ProxyDataFlow):
    """As `MapData`, with a function that runs in threads; datapoints come as they are done.

    A pass has the datapoints of one pass of the data flow, with `strict` or without.

    Args:
        ds: the data flow.
        num_thread: how many threads.
        map_func: takes a datapoint, a shallow copy that it may change; returns a datapoint, or None to drop it.
        buffer_size: how many datapoints are under way at most.
        strict: has no meaning here.

    Raises:
        ConfigError: `num_thread` or `map_func` is missing, or none.
    """

    def __init__(
        self,
        ds: Iterable[Any],
        num_thread: int | None = None,
        map_func: Function | None = None,
        *,
        buffer_size: int = 200,
        strict: bool = False,
    ) -> None:
        func = _function("MultiThreadMapData", "num_thread", num_thread, map_func)
        super().__init__(ds, num_thread, func, max(buffer_size, num_thread or 0), ordered=False)


class MultiProcessMapData(tpk.dataflow.MultiProcessMapData, ProxyDataFlow):
    """As `MapData`, with a function that runs in worker processes; datapoints come as they are done.

    A pass has the datapoints of one pass of the data flow, with `strict` or without. Datapoints travel through shared
    memory; the workers are fresh processes.

    Args:
        ds: the data flow.
        num_proc: how many processes.
        map_func: takes a datapoint, returns a datapoint, or None to drop it.
        buffer_size: how many datapoints are under way at most.
        strict: has no meaning here.

    Raises:
        ConfigError: `num_proc` or `map_func` is missing, or none.
    """

    def __init__(
        self,
        ds: Iterable[Any],
        num_proc: int | None = None,
        map_func: Function | None = None,
        *,
        buffer_size: int = 200,
        strict: bool = False,
    ) -> None:
        func = _function("MultiProcessMapData", "num_proc", num_proc, map_func)
        super().__init__(ds, num_proc, func, max(buffer_size, num_proc or 0), ordered=False)


MultiProcessMapDataZMQ = MultiProcessMapData


class MultiProcessMapAndBatchData(BatchData):
    """As `BatchData` of a `MultiProcessMapData`: the function runs in worker processes.

    Args:
        ds: the data flow.
        num_proc: how many processes.
        map_func: takes a datapoint, returns a datapoint, or None to drop it.
        batch_size: how many datapoints a batch has.
        buffer_size: how many datapoints are under way at most; by default those of ten batches.
    """

    def __init__(
        self, ds: Iterable[Any], num_proc: int, map_func: Function, batch_size: int, buffer_size: int | None = None
    ) -> None:
        size = batch_size * 10 if buffer_size is None else buffer_size
        super().__init__(MultiProcessMapData(ds, num_proc, map_func, buffer_size=size), batch_size)


MultiProcessMapAndBatchDataZMQ = MultiProcessMapAndBatchData


def _function(owner: str, number_name: str, number: int | None, map_func: Function | None) -> Function:
    if number is None or map_func is None:
        raise ConfigError(f"{owner} takes {number_name}= and map_func=: how many work, and what they do")
    return OnCopy(map_func) if callable(map_func) else map_func
