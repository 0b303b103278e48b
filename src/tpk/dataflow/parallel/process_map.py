"""Map by worker processes: a function applied to the datapoints of a flow."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from multiprocessing.connection import wait
from typing import Any

import attrs

from tpk.checks import check_positive
from tpk.dataflow.base import RNGDataFlow
from tpk.dataflow.parallel.map_base import ParallelMap
from tpk.dataflow.parallel.runner_base import iteration_is_over
from tpk.dataflow.parallel.seeding import SeededWork
from tpk.dataflow.parallel.transport.receiver import Receiver
from tpk.dataflow.parallel.transport.sender import Sender
from tpk.dataflow.parallel.worker_process import WorkerProcess, check_worker_init, stop_all


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
        ready = wait([worker.fileno() for _, worker in oldest.values()], self.warn_after)
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
