"""Data flows that run whole data flows in worker processes or threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tpk.dataflow
from tpk.dataflow.base import flow_length
from tpk.errors import InputError
from tpk_tensorpack.dataflow.base import ProxyDataFlow, with_older_names
from tpk_tensorpack.missing import not_here
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.utils import draw_rngs_from, fix_rng_seed, fixed_rng_seed

__all__ = [
    "MultiProcessPrefetchData",
    "MultiProcessRunner",
    "MultiProcessRunnerZMQ",
    "MultiThreadPrefetchData",
    "MultiThreadRunner",
    "PrefetchData",
    "PrefetchDataZMQ",
    "PrefetchOnGPUs",
]

_HWM = 50
"""tensorpack's high water mark, kept only as a default."""


class WholeFlowRunner:
    """First base class of the runners: workers run the whole flow repeatedly; a pass takes datapoints as they come.

    A pass has as many datapoints as the flow, taken from the workers in turn; it is infinite if the flow has no length.
    The workers keep running between passes. With several workers, a pass therefore repeats some datapoints and misses
    others.
    """

    _delivered = 0
    _team: Any
    ds: Any
    num_workers: int
    seed: int
    close: Callable[[], None]

    def __len__(self) -> int:
        return len(self.ds)

    def __iter__(self) -> Iterator[Any]:
        if self._team is None and self.num_workers > 1:
            logger.info(
                "%s: each of %d workers runs the whole data flow, which is for datapoints that are drawn at random",
                type(self).__name__,
                self.num_workers,
            )
        return super().__iter__()  # type: ignore[misc,no-any-return]

    def _share(self, index: int) -> Iterable[Any]:
        return _Whole(self.ds, index, self.seed)

    def _deliver(self, team: Any) -> Generator[Any, None, None]:
        size = flow_length(self.ds) or None
        datapoints = iter(team)
        try:
            while size is None or self._delivered < size:
                datapoint = next(datapoints)
                self._delivered += 1
                yield datapoint
                datapoint = None  # frees its memory before waiting for the next one
                if self._team is not team:
                    raise self._is_over()
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._team is team:
                self.close()
            elif isinstance(error, Exception):
                raise self._is_over() from error
            raise
        self._delivered = 0

    def _is_over(self) -> InputError:
        return InputError(
            f"this iteration of {type(self).__name__} is over: the data flow was iterated again, or closed. Its "
            f"workers serve one consumer at a time; make another {type(self).__name__} for a second one"
        )

    def break_off(self) -> None:
        """Make the next iteration begin a new pass, with the datapoints that the workers have prepared by then."""
        self._delivered = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the current iteration and of each worker's flow."""
        state: dict[str, Any] = super().state_dict()  # type: ignore[misc]
        return {**state, "delivered": self._delivered, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration continue from there."""
        super().load_state_dict(state)  # type: ignore[misc]
        self._delivered, self.seed = state["delivered"], state["seed"]


class _Whole(tpk.dataflow.RepeatedData):
    """The whole flow, repeated forever in a worker process with that worker's random numbers and GPU, if any."""

    def __init__(self, ds: Iterable[Any], index: int, seed: int, gpu: int | None = None) -> None:
        super().__init__(ds, -1)
        self.gpu = gpu
        fixed = fixed_rng_seed()
        self.fixed_seed = None if fixed is None else fixed + index
        self.seeds = [seed, index]

    def reset_state(self) -> None:
        if self.gpu is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = str(self.gpu)
        if self.fixed_seed is not None:
            fix_rng_seed(self.fixed_seed)
        else:
            draw_rngs_from(self.seeds)
        super().reset_state()


class MultiProcessRunnerZMQ(WholeFlowRunner, tpk.dataflow.MultiProcessRunner, ProxyDataFlow):
    """Run a whole data flow in each of several worker processes; see `tpk.dataflow.MultiProcessRunner`.

    Datapoints are passed through shared memory. The workers are fresh processes, started by the first iteration.

    Args:
        ds: the data flow.
        num_proc: the number of workers.
        hwm: the maximum number of prefetched datapoints per worker; by default as many as fit into 64 MB.
    """

    @with_older_names
    def __init__(self, ds: Iterable[Any], num_proc: int = 1, hwm: int = 50) -> None:
        super().__init__(ds, num_proc, None if hwm == _HWM else hwm)


class MultiProcessRunner(WholeFlowRunner, tpk.dataflow.MultiProcessRunner, ProxyDataFlow):
    """Run a whole data flow in each of several worker processes; the same as `MultiProcessRunnerZMQ`.

    Args:
        ds: the data flow.
        num_prefetch: the maximum number of prefetched datapoints, over all workers.
        num_proc: the number of workers.
    """

    @with_older_names
    def __init__(self, ds: Iterable[Any], num_prefetch: int, num_proc: int) -> None:
        super().__init__(ds, num_proc, _for_each_of(num_proc, num_prefetch))


class PrefetchOnGPUs(MultiProcessRunnerZMQ):
    """Run a whole data flow in each of several worker processes that see one GPU each, for scripts from before 2019.

    Args:
        ds: the data flow.
        gpus: the GPU number of each worker.
    """

    def __init__(self, ds: Iterable[Any], gpus: Sequence[int]) -> None:
        super().__init__(ds, len(gpus))
        self.gpus = list(gpus)

    def _share(self, index: int) -> Iterable[Any]:
        return _Whole(self.ds, index, self.seed, self.gpus[index])


class MultiThreadRunner(WholeFlowRunner, tpk.dataflow.MultiThreadRunner, ProxyDataFlow):
    """Run a separate data flow in each of several threads; see `tpk.dataflow.MultiThreadRunner`.

    Args:
        get_df: called once per thread; returns a data flow that shares nothing with the others.
        num_prefetch: the maximum number of prefetched datapoints, over all threads.
        num_thread: the number of threads.
    """

    @with_older_names
    def __init__(self, get_df: Callable[[], Iterable[Any]], num_prefetch: int, num_thread: int) -> None:
        super().__init__(get_df, num_thread, _for_each_of(num_thread, num_prefetch))

    def _share(self, index: int) -> Iterable[Any]:
        return tpk.dataflow.RepeatedData(self.get_flow() if index else self.flow, -1)


def _for_each_of(count: int, number: int) -> int:
    """Return a worker's share, rounded up; an invalid number of workers is reported elsewhere."""
    return -(-number // count) if count > 0 else number


_INSTEAD = (
    "MultiProcessRunnerZMQ without it: Arrow has dropped plasma, and worker processes use shared memory themselves"
)

__getattr__ = not_here(__name__, dict.fromkeys(["PlasmaGetData", "PlasmaPutData"], _INSTEAD))

PrefetchData = MultiProcessPrefetchData = MultiProcessRunner
PrefetchDataZMQ = MultiProcessRunnerZMQ
MultiThreadPrefetchData = MultiThreadRunner
