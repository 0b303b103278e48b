"""Samples of a measurement, taken now and then by a thread while the steps of an epoch run."""

from __future__ import annotations

import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.plugin import Callback, hookimpl
from tpk.plugin.creation import import_optional

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class SampledStatistics(Callback):
    """Base of callbacks that measure something every few seconds, and report at the end of each epoch.

    A thread measures, from the first step of an epoch until its last one; then one more sample is taken, so that a
    short epoch has one, too. No hook is called in a step. Nothing is kept in a checkpoint: a training that is resumed
    within an epoch measures the rest of it.

    A measurement that fails is a warning, once; nothing is measured any more then.

    A subclass implements `sample` and `statistics`.

    Args:
        interval: how many seconds lie between two samples.

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
        if not interval > 0:
            raise ConfigError(f"{type(self).__name__}(interval={interval!r}): expected a positive number of seconds.")
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
        """Return what is reported of an epoch.

        Args:
            samples: at least one of each name, in the order in which they were taken.
        """

    def disable(self, reason: object) -> None:
        """Measure and report nothing any more, and say so; the first time only."""
        if self._is_enabled:
            self._is_enabled = False
            logger.warning("%s reports nothing: %s", type(self).__name__, reason)

    # Last, and `after_epoch` first, so that what other callbacks do between two epochs is not measured.
    @hookimpl(trylast=True)
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Begin to measure."""
        self._samples = {}
        if self._is_enabled:
            self._stopped = threading.Event()
            self._thread = threading.Thread(target=self._run, name=f"tpk-{type(self).__name__}", daemon=True)
            self._thread.start()

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Stop to measure, and report."""
        self._stop()
        if self._is_enabled:
            self._take()
        if self._is_enabled:
            for name, value in self.statistics(self._samples).items():
                trainer.monitors.put_scalar(name, value)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Stop to measure, wherever in an epoch the training has ended."""
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
            self.disable(f"measuring has failed ({type(error).__name__}: {error})")
            return
        for name, value in sample.items():
            self._samples.setdefault(name, []).append(value)


_GB = 2**30


class _GPUTracker(SampledStatistics):
    """Base of the trackers of GPUs.

    Args:
        devices: the numbers of the GPUs, as ``nvidia-smi`` counts them; None for those of ``CUDA_VISIBLE_DEVICES``, or
            all.
        interval: how many seconds lie between two samples.
    """

    def __init__(self, devices: Sequence[int] | None, interval: float) -> None:
        super().__init__(interval)
        self._devices = None if devices is None else tuple(devices)
        self._nvml: Any = None
        self._is_open = False
        self._handles: dict[int, Any] = {}

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """See whether what asks NVML is there.

        Raises:
            PluginImportError: if it is not.
        """
        self._nvml = import_optional("pynvml", type(self).__name__, "nvidia-ml-py")

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Find the GPUs.

        Raises:
            ConfigError: if those that were given are not there.
        """
        self._handles, problem = self._find()
        if problem and self._devices is not None:
            raise ConfigError(
                f"{type(self).__name__}(devices={list(self._devices)}): {problem}. Give the numbers of GPUs as "
                "nvidia-smi counts them, or leave devices out, to track those that there are."
            )
        if problem:
            self.disable(f"{problem}. The training goes on without it.")

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Stop to measure, and leave NVML."""
        super().after_train(trainer)
        if self._is_open:
            self._is_open = False
            self._nvml.nvmlShutdown()

    def _find(self) -> tuple[dict[int, Any], str]:
        """Return the handles of the GPUs by their numbers, and what is wrong if there is none, or one is missing."""
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self._is_open = True
            count = nvml.nvmlDeviceGetCount()
            handles = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
            uuids = {index: nvml.nvmlDeviceGetUUID(handle) for index, handle in handles.items()}
        except nvml.NVMLError as error:
            return {}, f"no NVIDIA GPU can be asked ({error})"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        wanted = _visible(visible, uuids) if self._devices is None else list(self._devices)
        missing = [index for index in wanted if index not in handles]
        if missing:
            return {}, f"of GPU {', '.join(map(str, missing))} NVML knows nothing; it has {count} (from 0 on)"
        if not wanted:
            return {}, f"CUDA_VISIBLE_DEVICES={visible!r} leaves none of {count} GPUs"
        return {index: handles[index] for index in wanted}, ""


class GPUUtilizationTracker(_GPUTracker):
    """Reports at the end of each epoch how busy the GPUs were: ``gpu_utilization/0``, ``gpu_utilization_peak/0``, ….

    That is the percentage of time in which a GPU was computing anything, mean and highest of the samples of the epoch,
    as ``nvidia-smi`` shows it: of all processes that use it. A GPU that is busy half of the time mostly waits for data.

    When it runs: a thread asks NVML every `interval` seconds while steps run, and once more at the end of the epoch.
    It costs nothing in steps. It works on every strategy; of several processes, the chief measures, its own host. (A
    GPU that is split into MIG instances does not tell; that is a warning.)

    It needs nvidia-ml-py. Without an NVIDIA GPU or its driver, a warning says so, once, and the training goes on, so
    that one script serves here and there; if `devices` are given, that is an error.

    Args:
        devices: the numbers of the GPUs, as ``nvidia-smi`` counts them; None for those of ``CUDA_VISIBLE_DEVICES``, or
            all. (On a host whose GPUs are of different kinds, CUDA counts as ``nvidia-smi`` does only with
            ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.)
        interval: how many seconds lie between two samples. NVML itself looks at the last 1/6 to 1 second.

    Raises:
        ConfigError: if `interval` is not positive; when the training begins, if one of `devices` is not there.
        PluginImportError: when the training is set up, if nvidia-ml-py is not installed.

    Example:
        ```python
        callbacks=[tpk.GPUUtilizationTracker()]
        ```
    """

    def __init__(self, devices: Sequence[int] | None = None, interval: float = 1.0) -> None:
        super().__init__(devices, interval)

    def sample(self) -> Mapping[str, float]:
        """Return the utilization of each GPU, in percent."""
        rates = self._nvml.nvmlDeviceGetUtilizationRates
        return {str(index): rates(handle).gpu for index, handle in self._handles.items()}

    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return the mean and the highest of each GPU."""
        found: dict[str, float] = {}
        for index, values in samples.items():
            found[f"gpu_utilization/{index}"] = sum(values) / len(values)
            found[f"gpu_utilization_peak/{index}"] = max(values)
        return found


class GPUMemoryTracker(_GPUTracker):
    """Reports at the end of each epoch how full the GPUs were, at most: ``gpu_memory_gb/0``, ``gpu_tensors_gb/0``, ….

    ``gpu_memory_gb`` is what NVML calls used, by all processes. By default, TensorFlow takes nearly all of a GPU at
    once, so what the model itself needs is the other one: ``gpu_tensors_gb``, the peak of TensorFlow's allocator in
    this epoch (the first epoch's includes that of initialization), of each GPU of the session, as TensorFlow counts
    them. Both are in units of 2³⁰ bytes.

    When it runs: a thread asks NVML every `interval` seconds while steps run, and once more at the end of the epoch;
    TensorFlow is asked once an epoch, and forgets its peak then
    (`tf.config.experimental.get_memory_info`, ``reset_memory_stats``). It costs nothing in steps. It works on every
    strategy; of several processes, the chief measures, its own host.

    It needs nvidia-ml-py; what is said of `GPUUtilizationTracker` without a GPU holds for it, too.

    Args:
        devices: as for `GPUUtilizationTracker`, for NVML.
        interval: how many seconds lie between two samples.

    Raises:
        ConfigError: if `interval` is not positive; when the training begins, if one of `devices` is not there.
        PluginImportError: when the training is set up, if nvidia-ml-py is not installed.

    Example:
        ```python
        callbacks=[tpk.GPUMemoryTracker(devices=[0, 1])]
        ```
    """

    def __init__(self, devices: Sequence[int] | None = None, interval: float = 1.0) -> None:
        super().__init__(devices, interval)
        self._of_session: list[str] = []

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Find the GPUs, of the host and of the session.

        Raises:
            ConfigError: if those that were given are not there.
        """
        super().before_train(trainer)
        devices = trainer.sess.list_devices() if self._is_enabled else []
        self._of_session = [each.name for each in devices if each.device_type == "GPU"]

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Report."""
        super().after_epoch(trainer)
        for name, peak in allocator_peaks(self._of_session).items():
            trainer.monitors.put_scalar(f"gpu_tensors_gb/{name.rpartition(':')[2]}", peak / _GB)

    def sample(self) -> Mapping[str, float]:
        """Return the used memory of each GPU."""
        info = self._nvml.nvmlDeviceGetMemoryInfo
        return {str(index): info(handle).used / _GB for index, handle in self._handles.items()}

    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return the most of each GPU."""
        return {f"gpu_memory_gb/{index}": max(values) for index, values in samples.items()}


def allocator_peaks(devices: Sequence[str]) -> dict[str, int]:
    """Return the most bytes that TensorFlow's allocators had given out at once, since this was last asked.

    Args:
        devices: full names of devices; whose allocator keeps no such count is left out.
    """
    peaks = {}
    for name in devices:
        short = name.rpartition("device:")[2]
        try:
            peaks[name] = tf.config.experimental.get_memory_info(short)["peak"]
            tf.config.experimental.reset_memory_stats(short)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            logger.debug("TensorFlow does not tell how much memory %s has given out: %s", short, error)
    return peaks


def _visible(setting: str | None, uuids: Mapping[int, str]) -> list[int]:
    """Return the numbers of the GPUs that CUDA lets this process see.

    Args:
        setting: the value of ``CUDA_VISIBLE_DEVICES``: numbers or beginnings of UUIDs; what comes after one that is
            none does not count. None for all.
        uuids: those of all GPUs, by their numbers.
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
    """Reports at the end of each epoch the most memory that the training had, and the least that the host had left.

    ``host_memory_gb`` is the resident memory (RSS) of this process and of all that it has started, such as the workers
    of a dataflow, together; pages that several of them share, as batches in shared memory, count in each.
    ``host_memory_free_gb`` is what new processes could have without swapping. Both are in units of 2³⁰ bytes. A
    ``host_memory_gb`` that grows from epoch to epoch is a leak.

    When it runs: a thread measures every `interval` seconds while steps run, and once more at the end of the epoch. It
    costs nothing in steps; a sample looks at all processes of the host, which takes that thread a hundredth of a second
    or so. It works on every strategy; of several processes, the chief measures, its own host.

    It needs psutil.

    Args:
        interval: how many seconds lie between two samples.

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

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """See whether psutil is there.

        Raises:
            PluginImportError: if it is not.
        """
        self._psutil = import_optional("psutil", "HostMemoryTracker", "psutil")

    def sample(self) -> Mapping[str, float]:
        """Return both numbers as they are now."""
        own = self._psutil.Process(os.getpid())
        used = 0
        for process in (own, *own.children(recursive=True)):
            with suppress(self._psutil.NoSuchProcess, self._psutil.AccessDenied):  # It may just have ended.
                used += process.memory_info().rss
        return {"used": used / _GB, "free": self._psutil.virtual_memory().available / _GB}

    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return the worst of the epoch."""
        return {"host_memory_gb": max(samples["used"]), "host_memory_free_gb": min(samples["free"])}
