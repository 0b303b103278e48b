"""Callbacks that measure: memory, utilization, throughput, and where the time of a step goes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import tpk
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
    """Reports how busy the GPUs were in each epoch; see `tpk.GPUUtilizationTracker`. Without GPUs, it warns.

    Args:
        devices: their indices; by default all.
    """

    def __init__(self, devices: Sequence[int] | None = None) -> None:
        super().__init__(devices if get_num_gpu() else None)


class GPUMemoryTracker(Callback, tpk.GPUMemoryTracker):
    """Reports how much memory of the GPUs is used; see `tpk.GPUMemoryTracker`. Without GPUs, it warns.

    Args:
        devices: their indices.
    """

    def __init__(self, devices: Sequence[int] = (0,)) -> None:
        super().__init__(devices if get_num_gpu() else None)


PeakMemoryTracker = GPUMemoryTracker


class HostMemoryTracker(Callback, tpk.HostMemoryTracker):
    """Reports how much memory is used; see `tpk.HostMemoryTracker`."""

    def __init__(self) -> None:
        super().__init__()


class GraphProfiler(Callback, tpk.GraphProfiler):
    """Traces each step; wrap it in `PeriodicCallback`, or in `EnableCallbackIf`, for some. See `tpk.GraphProfiler`.

    Args:
        dump_metadata: write the metadata of the runs.
        dump_tracing: write a trace that Chrome shows.
        dump_event: write the metadata to the events, for TensorBoard.
    """

    def __init__(self, dump_metadata: bool = False, dump_tracing: bool = True, dump_event: bool = False) -> None:
        super().__init__(
            None, dump_tracing=dump_tracing, dump_profile=False, dump_metadata=dump_metadata, dump_event=dump_event
        )


class ThroughputTracker(Callback):
    """Reports at the end of each epoch how many samples, or else steps, there were in a second.

    Args:
        samples_per_step: how many samples a step has, of all devices; None for steps.
    """

    _chief_only = False

    def __init__(self, samples_per_step: int | None = None) -> None:
        if samples_per_step is not None and samples_per_step <= 0:
            raise ValueError(f"ThroughputTracker(samples_per_step={samples_per_step!r}): expected a positive number")
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
        unit, count = (
            ("steps", steps) if self._samples_per_step is None else ("samples", steps * self._samples_per_step)
        )
        self.trainer.monitors.put_scalar(f"Throughput ({unit}/sec)", count / self._seconds)
