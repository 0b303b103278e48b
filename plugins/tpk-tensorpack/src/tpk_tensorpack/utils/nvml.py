"""Memory and utilization of GPUs, from NVIDIA's management library. It needs the package nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.missing import optional_library

__all__ = ["NVMLContext"]


class NvidiaDevice:
    """A GPU.

    Args:
        nvml: the library.
        handle: the library's handle of the GPU.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def memory(self) -> dict[str, int]:
        """Return the memory in bytes: ``total``, ``free`` and ``used``."""
        info = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        return {"total": int(info.total), "free": int(info.free), "used": int(info.used)}

    def utilization(self) -> dict[str, int]:
        """Return the utilization over the last second, ``gpu`` and ``memory``, in percent."""
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        return {"gpu": int(rates.gpu), "memory": int(rates.memory)}

    def name(self) -> str:
        """Return the name of the GPU."""
        name = self._nvml.nvmlDeviceGetName(self._handle)
        return name.decode() if isinstance(name, bytes) else str(name)


class NVMLContext:
    """A context in which the library is initialized.

    Example:
        ```python
        with NVMLContext() as context:
            used = [device.memory()["used"] for device in context.devices()]
        ```
    """

    def __enter__(self) -> NVMLContext:
        """Initialize the library.

        Raises:
            ImportError: the package is not installed.
            Exception: the package's error without an NVIDIA driver.
        """
        self._nvml = optional_library("pynvml", "NVMLContext")
        self._nvml.nvmlInit()
        return self

    def __exit__(self, *exception: object) -> None:
        self._nvml.nvmlShutdown()

    def num_devices(self) -> int:
        """Return the number of GPUs."""
        return int(self._nvml.nvmlDeviceGetCount())

    def devices(self) -> Iterator[NvidiaDevice]:
        """Return all GPUs."""
        return (self.device(index) for index in range(self.num_devices()))

    def device(self, idx: int) -> NvidiaDevice:
        """Return one GPU.

        Raises:
            ValueError: there is no such GPU.
        """
        count = self.num_devices()
        if not 0 <= idx < count:
            raise CheckError(f"GPU {idx} does not exist: this host has {count}")
        return NvidiaDevice(self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(idx))
