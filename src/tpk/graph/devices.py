"""Devices of the towers of a process: a count, indices, or device strings become device strings.

CPU devices are logical: a session has as many as it is configured for. A GPU can also be split into logical devices, to
develop on one GPU what will run on several. Split it first thing in a script with TensorFlow's own function, because
logical GPUs exist once for all sessions of a process, and each has its share of the memory:

```python
(gpu,) = tf.config.list_physical_devices("GPU")
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=8192)] * 4)
trainer = tpk.make_trainer("replicated", devices=4)  # "/gpu:0" to "/gpu:3"
```
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError

logger = logging.getLogger(__name__)

Devices = int | str | Sequence[int | str] | None

_DEVICE = re.compile(r"^(?:/job:\w+)?(?:/replica:\d+)?(?:/task:\d+)?/(?:device:)?(cpu|gpu):(\d+|\*)$", re.IGNORECASE)


def resolve_devices(devices: Devices) -> list[str]:
    """Return the devices as strings such as ``"/gpu:1"``.

    Args:
        devices: a count, indices, or device strings; None for all GPUs, or one CPU device without a GPU. A count
            or indices mean GPUs (logical ones where a GPU is split) if there are any, otherwise logical CPU devices,
            with one warning in the log.

    Raises:
        ConfigError: if it is anything else, or names GPUs that do not exist; the message lists the GPUs.
    """
    gpus = len(physical_of_logical_gpus())
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
    if not gpus and not any(isinstance(device, str) for device in wanted):
        _warn_of_cpus(len(names))
    return names


@functools.cache
def _warn_of_cpus(count: int) -> None:
    places = "one logical CPU device" if count == 1 else f"{count} logical CPU devices, which share the cores"
    logger.warning(
        "TensorFlow sees no GPU, so it runs on %s. `tpk doctor` says why. To choose CPU devices, name them, as in "
        "devices=['/cpu:0'].",
        places,
    )


def physical_of_logical_gpus() -> list[int]:
    """Return the index of the physical GPU for each GPU of this host, in the order of device strings.

    The indices differ if `tf.config.set_logical_device_configuration` has split a GPU.
    """
    parts = [len(_logical_configuration(gpu)) for gpu in tf.config.list_physical_devices("GPU")]
    return [physical for physical, count in enumerate(parts) for _ in range(max(count, 1))]


def parts_of_one_gpu(devices: Sequence[str]) -> list[str]:
    """Return the device strings among `devices` that are logical parts of a split GPU of this process."""
    physical = physical_of_logical_gpus()
    parts = {f"/gpu:{index}" for index, gpu in enumerate(physical) if physical.count(gpu) > 1}
    return [device for device in devices if _canonical(device) in parts]


def add_logical_devices(config: Any, devices: Sequence[str]) -> Any:
    """Return a copy of a `tf.compat.v1.ConfigProto`, with the logical devices of this process added.

    These are as many CPU devices as `devices` need, and the logical GPUs that are configured in `tf.config`, unless
    `config` itself says how to split GPUs.
    """
    needed = [int(match[2]) + 1 for match in map(_DEVICE.match, devices) if match and match[1].lower() == "cpu"]
    adapted = tf.compat.v1.ConfigProto()
    adapted.CopyFrom(config)
    adapted.device_count["CPU"] = max([*needed, adapted.device_count["CPU"], 1])
    options = adapted.gpu_options
    configurations = [_logical_configuration(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    if any(configurations) and not options.experimental.virtual_devices:
        # TensorFlow expects an entry for each visible GPU; an empty one leaves the GPU whole.
        visible = [int(each) for each in options.visible_device_list.split(",") if each.strip()]
        for index in visible or range(len(configurations)):
            options.experimental.virtual_devices.add(
                memory_limit_mb=[logical.memory_limit for logical in configurations[index]]
            )
    return adapted


def _logical_configuration(gpu: Any) -> list[Any]:
    """Return the logical devices of a physical GPU; empty if it is not split."""
    configuration = tf.config.get_logical_device_configuration(gpu) or []
    return [logical for logical in configuration if logical.memory_limit is not None]


def is_gpu(device: str) -> bool:
    """Whether a device string names a GPU."""
    match = _DEVICE.match(device)
    return match is not None and match[1].lower() == "gpu"


def _canonical(name: str) -> str:
    """Return the same string for all spellings of a device, such as ``/gpu:0`` and ``/device:GPU:0``."""
    return name.lower().replace("/device:", "/")


def _check(name: str, gpus: int) -> None:
    match = _DEVICE.match(name)
    if match is None or match[2] == "*":
        raise ConfigError(f"{name!r} is not a device; expected a string such as '/gpu:0' or '/cpu:1'.")
    is_of_another_process = name.lower().startswith("/job:")
    if match[1].lower() == "gpu" and int(match[2]) >= gpus and not is_of_another_process:
        existing = ", ".join(f"/gpu:{index}" for index in range(gpus)) or "none"
        raise ConfigError(
            f"no device {name!r}. GPUs: {existing}. CPU devices are logical, so there are as many as you "
            "name: '/cpu:0', '/cpu:1', …. To split a GPU into logical ones, call "
            "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=MB), "
            "…]) before anything runs."
        )
