"""Base of the parallel maps: datapoints taken ahead, results in any order, and where that stands."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait as wait_for_futures
from multiprocessing import connection
from typing import Any, TypeVar

import attrs

from tpk.checks import check_positive
from tpk.dataflow.base import ProxyDataFlow, RNGDataFlow, error_of_data, may_refill
from tpk.dataflow.memory import copy_arrays
from tpk.dataflow.parallel.link import Receiver, Sender
from tpk.dataflow.parallel.runners import SeededWork, iteration_is_over
from tpk.dataflow.parallel.workers import WorkerProcess, check_worker_init, stop_all
from tpk.dataflow.position import Position, PositionTrail
from tpk.errors import ConfigError

MapT = TypeVar("MapT", bound="ParallelMap")


class ParallelMap(ProxyDataFlow):
    """Base of the flows that apply a function to several datapoints at a time.

    Args:
        flow: any iterable of datapoints.
        func: takes a datapoint, returns one or None, which drops it.
        buffer_size: how many datapoints are under way at most.
        ordered: whether the results come in the order of the flow, or as soon as they are there.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], func: Callable[[Any], Any], buffer_size: int, ordered: bool) -> None:
        super().__init__(flow)
        if not callable(func):
            raise ConfigError(f"{type(self).__name__} takes a function that maps a datapoint, not {func!r}")
        self.func = func
        self.buffer_size = buffer_size
        self.ordered = ordered
        self._ahead = ReadAhead(flow, buffer_size + 1)

    def __iter__(self) -> Iterator[Any]:
        return self._deliver(iter(self._ahead))

    def with_sources(self: MapT, sources: Sequence[Iterable[Any]]) -> MapT:
        """Return the same, with workers of its own, on top of another flow."""
        mapped = super().with_sources(sources)
        mapped._ahead = ReadAhead(mapped.flow, self.buffer_size + 1)
        return mapped

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even if a pass is under way."""
        self._ahead.break_off()

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration under way stands: at the first datapoint whose result has not been delivered."""
        return self._ahead.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there."""
        self._ahead.load_state_dict(state)

    @abstractmethod
    def _map(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[tuple[int, Any], None, None]:
        """Deliver pairs of number and result for pairs of number and datapoint."""

    def _deliver(self, datapoints: Generator[tuple[int, Any], None, None]) -> Generator[Any, None, None]:
        results = self._map(datapoints)
        try:
            for number, result in results:
                self._ahead.finish(number)
                if result is not None:
                    yield result
                    result = None
            self._ahead.end_pass()
        finally:
            results.close()
            datapoints.close()


class ReadAhead:
    """Hands out the numbered datapoints of a flow, and knows which of them are done with.

    A resumed pass begins with the first one that was not; those after it that were are not handed out again.

    Args:
        flow: any iterable of datapoints.
        horizon: how many datapoints are under way at most.
    """

    def __init__(self, flow: Iterable[Any], horizon: int) -> None:
        self._position = Position(flow)
        self._trail = PositionTrail(self._position, horizon)
        self._trail.start()
        self._first_open = 0
        self._done: set[int] = set()
        self._loaded: Mapping[str, Any] | None = None

    def __iter__(self) -> Generator[tuple[int, Any], None, None]:
        """Begin a pass, or go on with the one whose state was loaded: deliver pairs of number and datapoint."""
        loaded, self._loaded = self._loaded, None
        self._first_open, self._done = 0, set()
        skip = 0
        if loaded is not None:
            self._position.load_state_dict(loaded["position"])
            skip = loaded["skip"]
            self._done = set(loaded["done"])
        datapoints = iter(self._position)
        self._trail.start(-skip)
        return self._deliver(datapoints)

    def finish(self, number: int) -> None:
        """Note that the result of a datapoint has been used."""
        self._done.add(number)
        while self._first_open in self._done:
            self._done.remove(self._first_open)
            self._first_open += 1

    def end_pass(self) -> None:
        """Note that everything has been used, and the pass is over."""
        self._first_open, self._done = 0, set()
        self._trail.start()

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even if a pass is under way."""
        if self._loaded is not None:
            self._position.load_state_dict(self._loaded["position"])
            self._loaded = None
        self._position.break_off()
        self.end_pass()

    def state_dict(self) -> dict[str, Any]:
        """Return where the first datapoint stands that is not done with, and which ones after it are."""
        if self._loaded is not None:
            return dict(self._loaded)
        done = sorted(number - self._first_open for number in self._done)
        return {**self._trail.state_at(self._first_open), "done": done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there."""
        self._loaded = state

    def _deliver(self, datapoints: Generator[Any, None, None]) -> Generator[tuple[int, Any], None, None]:
        try:
            for datapoint in datapoints:
                number = self._trail.index
                self._trail.advance()
                if number >= 0 and number not in self._done:
                    yield number, datapoint
        finally:
            datapoints.close()


class MultiProcessMapData(ParallelMap, RNGDataFlow):
    """Apply a function to each datapoint, in worker processes; where it returns None, the datapoint is dropped.

    The flow beneath is iterated here, and its datapoints go to the workers through shared memory, as the results come
    back; see `MultiProcessRunner` for what that means, and for the workers. Prefer
    that one where the flow itself can be divided: there each datapoint travels once only.

    Args:
        flow: any iterable of datapoints.
        num_proc: how many workers.
        map_func: takes a datapoint, returns one or None; may be a lambda or closure.
        buffer_size: how many datapoints are under way at most, each of them taken from the flow; by default 4 a worker.
        ordered: whether the results come in the order of the flow, or as soon as they are there.
        warn_after: seconds without a result until a warning tells at which line the worker is.
        seed: what the global random numbers of Python and NumPy start from in each worker; by default drawn, or derived
            from the run's.
        worker_init: the name ``"module:function"`` of what each worker calls first; see `MultiProcessRunner`.

    Raises:
        ConfigError: a number is not positive, `worker_init` names no function; and, when it is iterated, the function
            cannot be pickled, or the one that `worker_init` names is not there.
        InputError: (in the iteration) a worker died.
        Exception: (in the iteration) what the function raised in a worker, with its traceback there as its cause.

    Example:
        ```python
        flow = MultiProcessMapData(DataFromList(files, shuffle=True), 4, lambda file: [read(file), label_of(file)])
        ```
    """

    def __init__(
        self,
        flow: Iterable[Any],
        num_proc: int,
        map_func: Callable[[Any], Any],
        buffer_size: int | None = None,
        ordered: bool = True,
        warn_after: float = 60.0,
        seed: int | None = None,
        *,
        worker_init: str | None = None,
    ) -> None:
        check_positive(self, num_proc=num_proc, buffer_size=buffer_size, warn_after=warn_after)
        check_worker_init(self, worker_init)
        ParallelMap.__init__(self, flow, map_func, max(buffer_size or 4 * num_proc, num_proc), ordered)
        RNGDataFlow.__init__(self, seed)
        self.num_proc = num_proc
        self.warn_after = warn_after
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
            self.close()  # What is under way would be taken for results of this pass.
        self._workers = [worker for worker in self._workers if worker.owner == os.getpid()]
        if not self._workers:
            self._start_workers()
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
                # Results that nobody has asked for would be taken for those of the next pass.
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
        """Return the task whose result is there first; each worker does its tasks in order."""
        oldest = {id(worker): (number, worker) for number, worker in reversed(tasks)}
        for task in oldest.values():
            if task[1].results.has_message:
                return task
        ready = connection.wait([worker.fileno() for _, worker in oldest.values()], self.warn_after)
        for task in oldest.values():
            if task[1].fileno() in ready:
                return task
        return tasks[0]  # It will warn that it has been waited for.

    def _start_workers(self) -> None:
        try:
            for index in range(self.num_proc):
                name = f"worker {index + 1} of {self.num_proc} of {type(self).__name__}"
                work = SeededWork(ApplyFunction(self.func), self.seed, (*self.worker, index))
                self._workers.append(WorkerProcess(name, work, self.buffer_size, self.warn_after, self.worker_init))
        except BaseException:
            self.close()
            raise


@attrs.frozen
class ApplyFunction:
    """The work of a worker: applies a function to each task."""

    func: Callable[[Any], Any]

    def __call__(self, sender: Sender, tasks: Receiver) -> None:
        """Do it; runs until the parent is gone."""
        while True:
            sender.send(self.func(tasks.receive()))


def _least_busy(workers: list[WorkerProcess], tasks: Iterable[tuple[int, WorkerProcess]]) -> WorkerProcess:
    busy = [worker for _, worker in tasks]
    return min(workers, key=busy.count)


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
        future = next(iter(tasks)) if self.ordered else wait_for_futures(tasks, return_when=FIRST_COMPLETED).done.pop()
        return tasks.pop(future), future.result()
