"""Devices of the towers of a process: a count, indices, or device strings become device strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError

Devices = int | str | Sequence[int | str] | None

_DEVICE = re.compile(r"^(?:/job:\w+)?(?:/replica:\d+)?(?:/task:\d+)?/(?:device:)?(cpu|gpu):(\d+|\*)$", re.IGNORECASE)


def resolve_devices(devices: Devices) -> list[str]:
    """Return the devices as strings such as ``"/gpu:1"``.

    Args:
        devices: how many; or their indices; or device strings, in which case nothing is assumed of them; None for all
            GPUs, or one CPU device if there is none. A count or indices mean GPUs where there are any, else logical
            CPU devices.

    Raises:
        ConfigError: if it is none of these, or asks for more GPUs than there are; it lists those that exist.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    if devices is None:
        devices = max(gpus, 1)
    if isinstance(devices, str):
        devices = [devices]
    is_count = isinstance(devices, int) and not isinstance(devices, bool) and devices > 0
    if not is_count and not isinstance(devices, Iterable):
        raise ConfigError(f"devices={devices!r}: expected a positive count, indices, or device strings.")
    wanted = list(range(devices)) if isinstance(devices, int) else list(devices)
    kind = "gpu" if gpus else "cpu"
    names = [device if isinstance(device, str) else f"/{kind}:{device}" for device in wanted]
    for name in names:
        _check(name, gpus)
    if not names or len(set(map(_canonical, names))) != len(names):
        raise ConfigError(f"devices={devices!r}: expected at least one device, and each only once.")
    return names


def add_cpu_devices(config: Any, devices: Sequence[str]) -> Any:
    """Return a `tf.compat.v1.ConfigProto` like `config`, with as many logical CPU devices as `devices` need."""
    needed = [int(match[2]) + 1 for match in map(_DEVICE.match, devices) if match and match[1].lower() == "cpu"]
    adapted = tf.compat.v1.ConfigProto()
    adapted.CopyFrom(config)
    adapted.device_count["CPU"] = max([*needed, adapted.device_count["CPU"], 1])
    return adapted


def is_gpu(device: str) -> bool:
    """Whether a device string is that of a GPU."""
    match = _DEVICE.match(device)
    return match is not None and match[1].lower() == "gpu"


def _canonical(name: str) -> str:
    """One string for all that mean the same device: ``/gpu:0`` and ``/device:GPU:0``."""
    return name.lower().replace("/device:", "/")


def _check(name: str, gpus: int) -> None:
    match = _DEVICE.match(name)
    if match is None or match[2] == "*":
        raise ConfigError(f"{name!r} is no device; expected a string such as '/gpu:0' or '/cpu:1'.")
    is_of_another_process = name.lower().startswith("/job:")
    if match[1].lower() == "gpu" and int(match[2]) >= gpus and not is_of_another_process:
        existing = ", ".join(f"/gpu:{index}" for index in range(gpus)) or "none"
        raise ConfigError(
            f"there is no device {name!r}. GPUs that exist: {existing}. CPU devices are logical, so there are as many "
            "as you name: '/cpu:0', '/cpu:1', …"
        )
