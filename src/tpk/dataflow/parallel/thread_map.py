"""Map by threads: a function applied to the datapoints of a flow."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from tpk.checks import check_positive
from tpk.dataflow.base import error_of_data, may_refill
from tpk.dataflow.memory import copy_arrays
from tpk.dataflow.parallel.map_base import ParallelMap


class MultiThreadMapData(ParallelMap):
    """Apply a function to each datapoint, in threads; where it returns None, the datapoint is dropped.

    This is for functions that wait (for a network, a disk) or compute where Python's lock is released, as NumPy, OpenCV
    and TensorFlow do. For Python code, use `MultiProcessMapData`.

    Args:
        flow: any iterable of datapoints.
        num_thread: how many threads.
        map_func: takes a datapoint, returns one or None; called by several threads at a time.
        buffer_size: how many datapoints are under way at most, each of them taken from the flow; by default 4 a thread.
        ordered: whether the results come in the order of the flow, or as soon as they are there.

    Raises:
        ConfigError: a number is not positive.
        Exception: (in the iteration) what the function raised.

    Example:
        ```python
        flow = MultiThreadMapData(DataFromList(urls), 16, lambda url: [download(url)])
        ```
    """

    def __init__(
        self,
        flow: Iterable[Any],
        num_thread: int,
        map_func: Callable[[Any], Any],
        buffer_size: int | None = None,
        ordered: bool = True,
    ) -> None:
        check_positive(self, num_thread=num_thread, buffer_size=buffer_size)
        super().__init__(flow, map_func, max(buffer_size or 4 * num_thread, num_thread), ordered)
        self.num_thread = num_thread

    def _map(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[tuple[int, Any], None, None]:
        tasks: dict[Future[Any], int] = {}
        pool = ThreadPoolExecutor(self.num_thread, thread_name_prefix=f"tpk {type(self).__name__}")
        refills = may_refill(self.flow)
        try:
            for number, datapoint in datapoints:
                while len(tasks) >= self.buffer_size:
                    yield self._next_result(tasks)
                tasks[pool.submit(self._apply, copy_arrays(datapoint) if refills else datapoint)] = number
            while tasks:
                yield self._next_result(tasks)
        finally:
            pool.shutdown(cancel_futures=True)

    def _apply(self, datapoint: Any) -> Any:
        try:
            # Another call of the function may write to what this one has returned before it is asked for.
            return copy_arrays(self.func(datapoint))
        except BaseException as error:
            failure = error_of_data(error, type(self).__name__)
            if failure is error:
                raise
            raise failure from error

    def _next_result(self, tasks: dict[Future[Any], int]) -> tuple[int, Any]:
        future = next(iter(tasks)) if self.ordered else wait(tasks, return_when=FIRST_COMPLETED).done.pop()
        return tasks.pop(future), future.result()
