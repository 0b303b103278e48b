"""Maps whose function is applied to several datapoints at a time, in processes or threads."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait as wait_for_futures
from itertools import islice
from multiprocessing import connection
from typing import Any, TypeVar

import attrs

from tpk.argument_checks import check_positive, given
from tpk.dataflow.base import RNGDataFlow, StatefulProxyDataFlow, error_of_data, may_refill
from tpk.dataflow.memory import copy_arrays
from tpk.dataflow.parallel.link import Receiver, Sender
from tpk.dataflow.parallel.runners import SeededWork, iteration_is_over
from tpk.dataflow.parallel.workers import WorkerProcess, check_worker_init, start_workers, stop_all
from tpk.dataflow.position import Parts, PositionTrail
from tpk.errors import ConfigError

MapT = TypeVar("MapT", bound="ParallelMap")


class ParallelMap(StatefulProxyDataFlow):
    """Base of the flows that apply a function to several datapoints at a time.

    It numbers the datapoints, and knows which of them are finished. A resumed pass begins with the first unfinished
    datapoint, and skips finished ones after it.

    Args:
        flow: any iterable of datapoints.
        func: takes a datapoint and returns one, or None to drop it.
        buffer_size: the largest number of datapoints in progress.
        ordered: whether results keep the order of the flow; otherwise they come as soon as they are ready.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], func: Callable[[Any], Any], buffer_size: int, ordered: bool) -> None:
        super().__init__(flow)
        if not callable(func):
            raise ConfigError(f"{type(self).__name__} takes a function that maps a datapoint, not {func!r}")
        self.func = func
        self.buffer_size = buffer_size
        self.ordered = ordered
        # Others may overtake a slow datapoint again and again.
        self._trail = PositionTrail(self.upstream, horizon=None)
        self._start_at(0)

    def __iter__(self) -> Iterator[Any]:
        self.begin()
        datapoints = iter(self.upstream)
        self._trail.start(self._trail.index)
        return self._deliver(self._numbered(datapoints))

    def with_sources(self: MapT, sources: Sequence[Iterable[Any]]) -> MapT:
        """Return a copy, with its own workers, on top of another flow."""
        mapped = super().with_sources(sources)
        mapped._trail = PositionTrail(mapped.upstream, horizon=None)
        mapped._start_at(0)
        return mapped

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        super().break_off()
        self._start_at(0)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the first unfinished datapoint, and the finished ones after it."""
        done = sorted(number - self._first_open for number in self._done)
        return {**self._trail.state_at(self._first_open), "done": done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        self.upstream.load_state_dict(state["position"])
        self._start_at(-state["skip"], state["done"])
        self._is_loaded = True

    @abstractmethod
    def _map(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[tuple[int, Any], None, None]:
        """Turn pairs of a number and a datapoint into pairs of the number and the result."""

    def _start_at(self, number: int, done: Iterable[int] = ()) -> None:
        """Give the next datapoint of the flow a number; the first unfinished one has number 0."""
        self._first_open, self._done = 0, set(done)
        self._trail.start(number)

    def _numbered(self, datapoints: Parts) -> Generator[tuple[int, Any], None, None]:
        """Deliver the unfinished datapoints with their numbers."""
        try:
            for datapoint in datapoints:
                number = self._trail.index
                self._trail.advance()
                if number >= 0 and number not in self._done:
                    yield number, datapoint
        finally:
            datapoints.close()

    def _deliver(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[Any, None, None]:
        results = self._map(datapoints)
        try:
            for number, result in results:
                self._finish(number)
                if result is not None:
                    yield result
                    result = None
            self._start_at(0)
        finally:
            results.close()
            datapoints.close()

    def _finish(self, number: int) -> None:
        self._done.add(number)
        while self._first_open in self._done:
            self._done.remove(self._first_open)
            self._first_open += 1
        self._trail.forget_before(self._first_open)


class MultiProcessMapData(ParallelMap, RNGDataFlow):
    """Apply a function to each datapoint in worker processes, and drop the datapoint if the function returns None.

    The flow beneath is iterated in this process. Its datapoints go to the workers through shared memory, and the
    results come back in the same way; see `MultiProcessRunner` about that and about workers. Prefer
    `MultiProcessRunner` if the flow can be divided: there, each datapoint is sent only once.

    Args:
        flow: any iterable of datapoints.
        num_proc: number of workers.
        map_func: takes a datapoint and returns one or None; may be a lambda or closure.
        buffer_size: the largest number of datapoints in progress; by default 4 per worker.
        ordered: whether results keep the order of the flow; otherwise they come as soon as they are ready.
        seed: seed of the global random numbers of Python and NumPy in the workers; by default drawn, or derived from
            the seed of the run.
        worker_init: the name ``"module:function"`` of a function that each worker calls first; see
            `MultiProcessRunner`.

    Attributes:
        warn_after: seconds without a result until a warning shows the stack of the worker; repeated after
            twice that time.

    Raises:
        ConfigError: a number is not positive or `worker_init` is not a name of a function; and, at the start of an
            iteration, `map_func` cannot be pickled, or the function of `worker_init` is missing.
        InputError: (during iteration) a worker died.
        Exception: (during iteration) an exception of the function in a worker, with its traceback there as the cause.

    Example:
        ```python
        flow = MultiProcessMapData(DataFromList(files, shuffle=True), 4, lambda file: [read(file), label_of(file)])
        ```
    """

    warn_after: float = 60.0

    def __init__(
        self,
        flow: Iterable[Any],
        num_proc: int,
        map_func: Callable[[Any], Any],
        buffer_size: int | None = None,
        ordered: bool = True,
        seed: int | None = None,
        *,
        worker_init: str | None = None,
    ) -> None:
        check_positive(self, num_proc=num_proc, **given(buffer_size=buffer_size))
        check_worker_init(self, worker_init)
        ParallelMap.__init__(self, flow, map_func, max(buffer_size or 4 * num_proc, num_proc), ordered)
        RNGDataFlow.__init__(self, seed)
        self.num_proc = num_proc
        self.worker_init = worker_init
        self._workers: list[WorkerProcess] = []
        self._is_in_pass = False

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        workers, self._workers = self._workers, []
        self._is_in_pass = False
        stop_all(workers)
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workers": [], "_is_in_pass": False}

    def _map(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[tuple[int, Any], None, None]:
        if self._is_in_pass:
            self.close()  # The results in progress would be taken for results of this pass.
        self._workers = [worker for worker in self._workers if worker.owner == os.getpid()]
        if not self._workers:
            self._workers = self._start_workers()
        workers = self._workers
        self._is_in_pass = True
        tasks: deque[tuple[int, WorkerProcess]] = deque()
        finished = False
        try:
            for number, datapoint in datapoints:
                worker = workers[number % self.num_proc] if self.ordered else _least_busy(workers, tasks)
                while tasks and (len(tasks) >= self.buffer_size or not worker.has_room):
                    yield self._receive(tasks)
                worker.send(datapoint)
                tasks.append((number, worker))
                datapoint = None
            while tasks:
                result: Any = self._receive(tasks)
                if not tasks:
                    finished, self._is_in_pass = True, False
                yield result
                result = None
        except Exception as error:
            if self._workers is not workers:
                raise iteration_is_over(self) from error
            raise
        finally:
            if not finished:
                # The remaining results would be taken for results of the next pass.
                if self._workers is workers:
                    self.close()
                else:
                    stop_all(workers)

    def _receive(self, tasks: deque[tuple[int, WorkerProcess]]) -> tuple[int, Any]:
        task = tasks[0] if self.ordered else self._first_done(tasks)
        tasks.remove(task)
        number, worker = task
        return number, worker.receive()

    def _first_done(self, tasks: deque[tuple[int, WorkerProcess]]) -> tuple[int, WorkerProcess]:
        """Return the first task whose result is ready; each worker does its tasks in order."""
        oldest = {id(worker): (number, worker) for number, worker in reversed(tasks)}
        for task in oldest.values():
            if task[1].results.has_message:
                return task
        ready = connection.wait([worker.fileno() for _, worker in oldest.values()], self.warn_after)
        for task in oldest.values():
            if task[1].fileno() in ready:
                return task
        return tasks[0]  # It will warn that it has been waited for.

    def _start_workers(self) -> list[WorkerProcess]:
        works = [SeededWork(ApplyFunction(self.func), self.seed, (*self.worker, i)) for i in range(self.num_proc)]
        return start_workers(type(self).__name__, works, self.buffer_size, self.warn_after, self.worker_init)


@attrs.frozen
class ApplyFunction:
    """The work of a worker: applies a function to each task."""

    func: Callable[[Any], Any]

    def __call__(self, sender: Sender, tasks: Receiver) -> None:
        """Run until the parent is gone."""
        while True:
            sender.send(self.func(tasks.receive()))


def _least_busy(workers: list[WorkerProcess], tasks: Iterable[tuple[int, WorkerProcess]]) -> WorkerProcess:
    busy = [worker for _, worker in tasks]
    return min(workers, key=busy.count)


class MultiThreadMapData(ParallelMap):
    """Apply a function to each datapoint in threads, and drop the datapoint if the function returns None.

    Use it for functions that wait (for a network or a disk) or compute without Python's lock, like NumPy, OpenCV and
    TensorFlow. For Python code, use `MultiProcessMapData`.

    Args:
        flow: any iterable of datapoints.
        num_thread: number of threads.
        map_func: takes a datapoint and returns one or None; called by several threads at a time.
        buffer_size: the largest number of datapoints in progress; by default 4 per thread.
        ordered: whether results keep the order of the flow; otherwise they come as soon as they are ready.

    Raises:
        ConfigError: a number is not positive.
        Exception: (during iteration) an exception of the function.

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
        check_positive(self, num_thread=num_thread, **given(buffer_size=buffer_size))
        super().__init__(flow, map_func, max(buffer_size or 4 * num_thread, num_thread), ordered)
        self.num_thread = num_thread

    def _map(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[tuple[int, Any], None, None]:
        # Handing over a datapoint takes longer than a short function, so several go together if the buffer is large.
        size = max(self.buffer_size // (8 * self.num_thread), 1)
        copied = ((number, copy_arrays(datapoint)) for number, datapoint in datapoints)
        numbered = copied if may_refill(self.flow) else datapoints
        tasks: dict[Future[list[tuple[int, Any]]], None] = {}
        pool = ThreadPoolExecutor(self.num_thread, thread_name_prefix=f"tpk {type(self).__name__}")
        try:
            while block := list(islice(numbered, size)):
                tasks[pool.submit(self._apply, block)] = None
                while (len(tasks) + 1) * size > self.buffer_size and tasks:
                    yield from self._next_results(tasks)
            while tasks:
                yield from self._next_results(tasks)
        finally:
            pool.shutdown(cancel_futures=True)

    def _apply(self, block: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        results: list[tuple[int, Any]] = []
        for number, datapoint in block:
            try:
                # Another call of the function may overwrite this result before it is delivered.
                results.append((number, copy_arrays(self.func(datapoint))))
            except BaseException as error:
                return [*results, (number, _Failure(error_of_data(error, type(self).__name__)))]
        return results

    def _next_results(self, tasks: dict[Future[list[tuple[int, Any]]], None]) -> Iterator[tuple[int, Any]]:
        future = next(iter(tasks)) if self.ordered else wait_for_futures(tasks, return_when=FIRST_COMPLETED).done.pop()
        del tasks[future]
        for number, result in future.result():
            if isinstance(result, _Failure):
                raise result.error
            yield number, result


@attrs.frozen
class _Failure:
    """The error of a function, after the results before it."""

    error: BaseException
