"""Callbacks that report measurements of GPUs and memory, sampled by a thread during each epoch."""

from __future__ import annotations

import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_positive
from tpk.errors import ConfigError
from tpk.plugin import Callback, hookimpl
from tpk.plugin.creation import import_optional

logger = logging.getLogger(__name__)


class SampledStatistics(Callback):
    """Base of callbacks that measure something every few seconds, and report at the end of each epoch.

    A thread measures from the first to the last step of an epoch, and once after it, so that a short epoch has a sample
    too. No hook is called in a step. Nothing is saved in checkpoints: a training that is resumed within an epoch
    measures the rest of it. If a measurement fails, there is a warning, and no further measurement.

    A subclass implements `sample` and `statistics`.

    Args:
        interval: the number of seconds between two samples.

    Raises:
        ConfigError: if `interval` is not positive.

    Example:
        ```python
        class LoadTracker(SampledStatistics):
            def sample(self):
                return {"load": os.getloadavg()[0]}

            def statistics(self, samples):
                return {"load": max(samples["load"])}
        ```
    """

    def __init__(self, interval: float) -> None:
        check_positive(self, interval=interval)
        self._interval = interval
        self._is_enabled = True
        self._samples: dict[str, list[float]] = {}
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    @abstractmethod
    def sample(self) -> Mapping[str, float]:
        """Measure once; called in a thread."""

    @abstractmethod
    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return the statistics of an epoch.

        Args:
            samples: the values of each name, in order; at least one.
        """

    def disable(self, reason: object) -> None:
        """Stop measuring and reporting, with a warning."""
        if self._is_enabled:
            self._is_enabled = False
            logger.warning("%s reports nothing: %s", type(self).__name__, reason)

    # Last, and `after_epoch` first, so that the work of other callbacks between two epochs is not measured.
    @hookimpl(trylast=True)
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Start to measure."""
        self._samples = {}
        if self._is_enabled:
            self._stopped = threading.Event()
            self._thread = threading.Thread(target=self._run, name=f"tpk-{type(self).__name__}", daemon=True)
            self._thread.start()

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Stop measuring, and report."""
        self._stop()
        if self._is_enabled:
            self._take()
        if self._is_enabled:
            for name, value in self.statistics(self._samples).items():
                trainer.monitors.put_scalar(name, value)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Stop measuring if the training has ended within an epoch."""
        self._stop()

    def _stop(self) -> None:
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while self._is_enabled and not self._stopped.wait(self._interval):
            self._take()

    def _take(self) -> None:
        try:
            sample = self.sample()
        except Exception as error:
            self.disable(f"a measurement failed ({type(error).__name__}: {error})")
            return
        for name, value in sample.items():
            self._samples.setdefault(name, []).append(value)


_GB = 2**30


class _GPUTracker(SampledStatistics):
    """Base of the trackers of GPUs.

    Args:
        devices: the numbers of the GPUs in ``nvidia-smi``; None for those in ``CUDA_VISIBLE_DEVICES``, or else all.
        interval: the number of seconds between two samples.
    """

    def __init__(self, devices: Sequence[int] | None = None, interval: float = 1.0) -> None:
        super().__init__(interval)
        self._devices = None if devices is None else tuple(devices)
        self._nvml: Any = None
        self._is_open = False
        self._handles: dict[int, Any] = {}

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Import pynvml."""
        self._nvml = import_optional("pynvml", type(self).__name__, "nvidia-ml-py")

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Find the GPUs."""
        self._handles, problem = self._find()
        if problem and self._devices is not None:
            raise ConfigError(
                f"{type(self).__name__}(devices={list(self._devices)}): {problem}. Give numbers from nvidia-smi, or "
                "leave devices out to track all GPUs."
            )
        if problem:
            self.disable(f"{problem}. The training continues without it.")

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Stop measuring, and shut NVML down."""
        super().after_train(trainer)
        if self._is_open:
            self._is_open = False
            self._nvml.nvmlShutdown()

    def _find(self) -> tuple[dict[int, Any], str]:
        """Return the handles of the GPUs by their numbers, or the problem if some or all are missing."""
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self._is_open = True
            count = nvml.nvmlDeviceGetCount()
            handles = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
            uuids = {index: nvml.nvmlDeviceGetUUID(handle) for index, handle in handles.items()}
        except nvml.NVMLError as error:
            return {}, f"NVML finds no GPU ({error})"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        wanted = _visible(visible, uuids) if self._devices is None else list(self._devices)
        missing = [index for index in wanted if index not in handles]
        if missing:
            return {}, f"NVML has {count} GPUs, numbered from 0, and lacks {', '.join(map(str, missing))}"
        if not wanted:
            return {}, f"CUDA_VISIBLE_DEVICES={visible!r} hides all {count} GPUs"
        return {index: handles[index] for index in wanted}, ""


class GPUUtilizationTracker(_GPUTracker):
    """Reports at the end of each epoch how busy the GPUs were: ``gpu_utilization/0``, ``gpu_utilization_peak/0``, ….

    That is the percentage of time in which a GPU was computing, as in ``nvidia-smi``, for all processes that use it:
    the mean and the maximum of the samples of the epoch. A GPU that is busy half of the time mostly waits for data.

    A thread asks NVML every `interval` seconds while steps run, and again at the end of the epoch; steps cost
    nothing. It works on every strategy; with several processes, the chief measures its own host. (A GPU that is split
    into MIG instances does not report its utilization; that is a warning.)

    It needs nvidia-ml-py. Without an NVIDIA GPU or its driver, it reports nothing, and a warning says so once, so the
    same script works on hosts without GPUs. If `devices` are given, that is an error.

    Args:
        devices: the numbers of the GPUs in ``nvidia-smi``; None for those in ``CUDA_VISIBLE_DEVICES``, or else all. (On
            a host with different kinds of GPUs, CUDA numbers them like ``nvidia-smi`` only with
            ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.)
        interval: the number of seconds between two samples. NVML itself averages over 1/6 to 1 second.

    Raises:
        ConfigError: if `interval` is not positive; when the training starts, if one of `devices` does not exist.
        PluginImportError: when the training is set up, if nvidia-ml-py is not installed.

    Example:
        ```python
        callbacks=[tpk.GPUUtilizationTracker()]
        ```
    """

    def sample(self) -> Mapping[str, float]:
        """Return the utilization of each GPU, in percent."""
        rates = self._nvml.nvmlDeviceGetUtilizationRates
        return {str(index): rates(handle).gpu for index, handle in self._handles.items()}

    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return the mean and the maximum for each GPU."""
        means = {f"gpu_utilization/{index}": sum(values) / len(values) for index, values in samples.items()}
        return means | {f"gpu_utilization_peak/{index}": max(values) for index, values in samples.items()}


class GPUMemoryTracker(_GPUTracker):
    """Reports at the end of each epoch the peak memory of the GPUs: ``gpu_memory_gb/0``, ``gpu_tensors_gb/0``, ….

    ``gpu_memory_gb`` is the memory in use by all processes, according to NVML. Because TensorFlow allocates nearly all
    memory of a GPU at once by default, ``gpu_tensors_gb`` shows what the model itself needs: the peak of TensorFlow's
    allocator in this epoch (in the first epoch, including initialization) for each GPU of the session, with
    TensorFlow's numbers. Both are in units of 2³⁰ bytes.

    A thread asks NVML every `interval` seconds while steps run, and again at the end of the epoch; steps cost
    nothing. The peak of TensorFlow's allocator is read and reset once per epoch
    (`tf.config.experimental.get_memory_info`, ``reset_memory_stats``). It works on every strategy; with several
    processes, the chief measures its own host.

    It needs nvidia-ml-py. Without a GPU it does the same as `GPUUtilizationTracker`.

    Args:
        devices: see `GPUUtilizationTracker`; for NVML.
        interval: the number of seconds between two samples.

    Raises:
        ConfigError: if `interval` is not positive; when the training starts, if one of `devices` does not exist.
        PluginImportError: when the training is set up, if nvidia-ml-py is not installed.

    Example:
        ```python
        callbacks=[tpk.GPUMemoryTracker(devices=[0, 1])]
        ```
    """

    _of_session: Sequence[str] = ()

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Find the GPUs of the host and of the session."""
        super().before_train(trainer)
        devices = trainer.sess.list_devices() if self._is_enabled else []
        self._of_session = [each.name for each in devices if each.device_type == "GPU"]

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Report the peaks."""
        super().after_epoch(trainer)
        for name, peak in allocator_peaks(self._of_session).items():
            trainer.monitors.put_scalar(f"gpu_tensors_gb/{name.rpartition(':')[2]}", peak / _GB)

    def sample(self) -> Mapping[str, float]:
        """Return the used memory of each GPU."""
        info = self._nvml.nvmlDeviceGetMemoryInfo
        return {str(index): info(handle).used / _GB for index, handle in self._handles.items()}

    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return the peak for each GPU."""
        return {f"gpu_memory_gb/{index}": max(values) for index, values in samples.items()}


def allocator_peaks(devices: Sequence[str]) -> dict[str, int]:
    """Return the peaks of TensorFlow's allocators, in bytes, since the last call.

    Args:
        devices: full names of devices; a device whose allocator does not count is left out.
    """
    peaks = {}
    for name in devices:
        short = name.rpartition("device:")[2]
        try:
            peaks[name] = tf.config.experimental.get_memory_info(short)["peak"]
            tf.config.experimental.reset_memory_stats(short)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            logger.debug("TensorFlow does not report the allocated memory of %s: %s", short, error)
    return peaks


def _visible(setting: str | None, uuids: Mapping[int, str]) -> list[int]:
    """Return the numbers of the GPUs that are visible to CUDA.

    Args:
        setting: the value of ``CUDA_VISIBLE_DEVICES``: numbers or prefixes of UUIDs, up to the first invalid one; None
            for all GPUs.
        uuids: the UUIDs of all GPUs by their numbers.
    """
    if setting is None:
        return list(uuids)
    found = []
    for item in filter(None, map(str.strip, setting.split(","))):
        named = [index for index, uuid in uuids.items() if uuid.startswith(item)]
        index = int(item) if item.isdigit() else named[0] if named else -1
        if index not in uuids:
            break
        found.append(index)
    return found


class HostMemoryTracker(SampledStatistics):
    """Reports at the end of each epoch the peak memory of the training, and the minimum of the host's free memory.

    ``host_memory_gb`` is the resident memory (RSS) of this process and all of its child processes, such as the workers
    of a dataflow; shared pages, such as batches in shared memory, count in each process. ``host_memory_free_gb`` is the
    memory available to new processes without swapping. Both are in units of 2³⁰ bytes. A ``host_memory_gb`` that grows
    from epoch to epoch is a leak.

    A thread measures every `interval` seconds while steps run, and again at the end of the epoch. Steps cost
    nothing; a sample looks at all processes of the host, which takes the thread about a hundredth of a second. It works
    on every strategy; with several processes, the chief measures its own host. It needs psutil.

    Args:
        interval: the number of seconds between two samples.

    Raises:
        ConfigError: if `interval` is not positive.
        PluginImportError: when the training is set up, if psutil is not installed.

    Example:
        ```python
        callbacks=[tpk.HostMemoryTracker()]
        ```
    """

    def __init__(self, interval: float = 5.0) -> None:
        super().__init__(interval)
        self._psutil: Any = None

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Import psutil."""
        self._psutil = import_optional("psutil", "HostMemoryTracker", "psutil")

    def sample(self) -> Mapping[str, float]:
        """Return the current values."""
        own = self._psutil.Process(os.getpid())
        used = 0
        for process in (own, *own.children(recursive=True)):
            with suppress(self._psutil.NoSuchProcess, self._psutil.AccessDenied):  # It may have just ended.
                used += process.memory_info().rss
        return {"used": used / _GB, "free": self._psutil.virtual_memory().available / _GB}

    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return the worst values of the epoch."""
        return {"host_memory_gb": max(samples["used"]), "host_memory_free_gb": min(samples["free"])}
