"""Worker processes that run a whole flow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tpk.checks import check_positive
from tpk.dataflow.parallel.runner_base import FlowRunner, RunFlow
from tpk.dataflow.parallel.seeding import GlobalRandom, SeededWork
from tpk.dataflow.parallel.team import Team, TeamState
from tpk.dataflow.parallel.worker_process import WorkerProcess, check_worker_init, stop_all


class MultiProcessRunner(FlowRunner[WorkerProcess]):
    """Run a flow in worker processes: each makes its share of the datapoints, ahead of their use.

    The shares are those of `shard`: of a sequence, and of what stands on one, a worker makes its own datapoints only.
    Of a generator, or whatever else can do nothing but be iterated, each makes all, which a warning tells: then let it
    deliver what costs little, such as file names, and do the work in a `MapData` on top.

    Datapoints are taken from the workers in turn, so they come as the flow itself delivers them, each once a pass, and
    in the same order; batches are the same, too. Only what is random in each datapoint, or drops some of them, is
    another thing in each worker: there the order depends on the number of workers, and on nothing else. An endless flow
    of random numbers makes other ones in each worker.

    Arrays come through shared memory, aligned so that TensorFlow takes them without a copy; batches are put together
    there if a `BatchData` is the last stage (or only a `RepeatedData`, `FixedSizeData` or `PrintData` is on top). They
    may be kept and changed; their memory is used again when no view of them is left. Anything else that can be pickled
    comes, too.

    A worker is a fresh interpreter; the flow is sent there by cloudpickle, so it may contain lambdas, closures and
    classes of the main script, which needs no ``if __name__ == "__main__"``. The flow's ``reset_state`` is called in
    each worker, not here. Workers live from pass to pass, and end when the flow is closed or collected, or a pass is
    given up, or their parent is gone; on Linux the kernel sees to the latter, at once and whatever they are at.

    Args:
        flow: any iterable of datapoints that can be pickled.
        num_proc: how many workers.
        num_prefetch: how many datapoints each worker is ahead at most; by default up to 64 of them, in 64 MB.
        warn_after: seconds without a datapoint until a warning tells at which line the worker is.
        seed: what the global random numbers of Python and NumPy start from in each worker (those of the flow have
            their own seed); by default drawn, or derived from the run's.
        worker_init: the name ``"module:function"`` of a function without arguments that each worker calls first, before
            the flow is unpickled and anything of the main script is imported: for settings of the process, such as
            ``tf.compat.v1.disable_v2_behavior()`` or the number of OpenCV's threads.

    Raises:
        ConfigError: a number is not positive, `worker_init` names no function; and, when it is iterated, the flow
            cannot be pickled, or there is no such function.
        InputError: (in the iteration) a worker died.
        Exception: (in the iteration) what the flow raised in a worker, with the traceback from there as its cause.

    Example:
        ```python
        flow = MapData(DataFromList(files, shuffle=True), read_and_augment)
        flow = MultiProcessRunner(BatchData(flow, 32), num_proc=4)
        ```
    """

    def __init__(
        self,
        flow: Iterable[Any],
        num_proc: int,
        num_prefetch: int | None = None,
        warn_after: float = 60.0,
        seed: int | None = None,
        *,
        worker_init: str | None = None,
    ) -> None:
        check_positive(self, num_proc=num_proc, num_prefetch=num_prefetch, warn_after=warn_after)
        check_worker_init(self, worker_init)
        super().__init__(flow, num_proc, seed)
        self.num_proc = num_proc
        self.num_prefetch = num_prefetch
        self.warn_after = warn_after
        self.worker_init = worker_init

    def _start(self, state: TeamState, shares: Sequence[Iterable[Any]]) -> Team[WorkerProcess]:
        workers: list[WorkerProcess] = []
        try:
            for index, (share, start) in enumerate(zip(shares, state.workers, strict=True)):
                name = f"worker {index + 1} of {self.num_proc} of {type(self).__name__}"
                worker_key = (*self.worker, index)
                work = SeededWork(RunFlow(share, start, GlobalRandom()), self.seed, worker_key)
                workers.append(WorkerProcess(name, work, self.num_prefetch, self.warn_after, self.worker_init))
        except BaseException:
            stop_all(workers)
            raise
        return Team(workers, state)

    def _stop(self, team: Team[WorkerProcess]) -> None:
        stop_all(team.members)
