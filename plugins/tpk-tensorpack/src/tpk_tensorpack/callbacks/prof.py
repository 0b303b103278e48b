"""Callbacks that measure memory, utilization, throughput and the time of a step."""

from __future__ import annotations

import time
from collections.abc import Sequence

import tpk
from tpk.argument_checks import check_positive, given
from tpk_tensorpack.callbacks.base import Callback
from tpk_tensorpack.utils.gpu import get_num_gpu

__all__ = [
    "GPUMemoryTracker",
    "GPUUtilizationTracker",
    "GraphProfiler",
    "HostMemoryTracker",
    "PeakMemoryTracker",
    "ThroughputTracker",
]


class GPUUtilizationTracker(Callback, tpk.GPUUtilizationTracker):
    """Report the utilization of GPUs in each epoch; see `tpk.GPUUtilizationTracker`. Without GPUs, it warns.

    Args:
        devices: GPU indices; by default all.
    """

    def __init__(self, devices: Sequence[int] | None = None) -> None:
        super().__init__(devices if get_num_gpu() else None)


class GPUMemoryTracker(Callback, tpk.GPUMemoryTracker):
    """Report the memory use of GPUs; see `tpk.GPUMemoryTracker`. Without GPUs, it warns.

    Args:
        devices: GPU indices.
    """

    def __init__(self, devices: Sequence[int] = (0,)) -> None:
        super().__init__(devices if get_num_gpu() else None)


PeakMemoryTracker = GPUMemoryTracker


class HostMemoryTracker(Callback, tpk.HostMemoryTracker):
    """Report the memory use of the host; see `tpk.HostMemoryTracker`."""


class GraphProfiler(Callback, tpk.GraphProfiler):
    """Trace each step; use `PeriodicCallback` or `EnableCallbackIf` to select steps. See `tpk.GraphProfiler`.

    Args:
        dump_metadata: whether to write the run metadata.
        dump_tracing: whether to write a trace for Chrome.
        dump_event: whether to write the metadata to the event file, for TensorBoard.
    """

    def __init__(self, dump_metadata: bool = False, dump_tracing: bool = True, dump_event: bool = False) -> None:
        super().__init__(
            None, dump_tracing=dump_tracing, dump_profile=False, dump_metadata=dump_metadata, dump_event=dump_event
        )


class ThroughputTracker(Callback):
    """Report samples or steps per second at the end of each epoch.

    Args:
        samples_per_step: the number of samples in a step, over all devices; None to report steps.
    """

    _chief_only = False

    def __init__(self, samples_per_step: int | None = None) -> None:
        check_positive(self, **given(samples_per_step=samples_per_step))
        self._samples_per_step = samples_per_step
        self._began = 0.0
        self._first_step = 0
        self._seconds = 0.0

    def _before_epoch(self) -> None:
        self._first_step, self._began = self.global_step, time.perf_counter()

    def _after_epoch(self) -> None:
        self._seconds = time.perf_counter() - self._began

    def _trigger(self) -> None:
        steps = self.global_step - self._first_step
        if not steps or self._seconds <= 0:
            return
        speed = steps / self._seconds
        if self._samples_per_step is None:
            self.trainer.monitors.put_scalar("Throughput (steps/sec)", speed)
        else:
            self.trainer.monitors.put_scalar("Throughput (samples/sec)", speed * self._samples_per_step)
