"""Devices of the towers of a process: a count, indices, or device strings become device strings.

CPU devices are logical ones, as many as a session is asked for. A GPU can be split into logical ones, too, so that what
is to run on several is developed on one. It is TensorFlow's own function that says so, first thing in a script, for
they exist once for all sessions of a process, and each has its share of the memory:

```python
(gpu,) = tf.config.list_physical_devices("GPU")
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=8192)] * 4)
trainer = tpk.make_trainer("replicated", devices=4)  # "/gpu:0" to "/gpu:3"
```
"""

from __future__ import annotations

import functools
import glob
import logging
import os
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
        devices: how many; or their indices; or device strings, in which case nothing is assumed of them; None for all
            GPUs, or one CPU device if there is none. A count or indices mean GPUs where there are any, the logical ones
            where one is split, else logical CPU devices; that is a warning in the log, once, which says why there is
            no GPU.

    Raises:
        ConfigError: if it is none of these, or asks for more GPUs than there are; it lists those that exist.
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


def why_no_gpu() -> str:
    """Return why TensorFlow sees no GPU, as far as that can be told, and what to do about it."""
    build = tf.sysconfig.get_build_info()
    if not tf.test.is_built_with_cuda():
        if build.get("is_rocm_build"):
            return "This TensorFlow is built for ROCm, and finds no AMD GPU."
        return (
            f"TensorFlow {tf.__version__} as installed here is built without CUDA (such as tensorflow-cpu). On Linux, "
            "pip install 'tensorflow[and-cuda]'."
        )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1", "none", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides all GPUs. Unset it."
    if not glob.glob("/dev/nvidia[0-9]*") and not os.path.exists("/dev/dxg"):
        return "There is no /dev/nvidia*: this host has no NVIDIA GPU, or its container does not get it (--gpus all)."
    return (
        f"This host has a GPU, but its driver or the libraries of CUDA {build.get('cuda_version', '')} and cuDNN "
        f"{build.get('cudnn_version', '')} are missing or do not fit together: install NVIDIA's driver, and pip "
        "install 'tensorflow[and-cuda]'. With TF_CPP_MIN_LOG_LEVEL=0, TensorFlow tells which it could not load."
    )


@functools.cache
def _warn_of_cpus(count: int) -> None:
    places = "a logical CPU device" if count == 1 else f"{count} logical CPU devices, which share the cores"
    logger.warning(
        "TensorFlow sees no GPU, so it runs on %s. %s If CPU devices are what you want, name them: devices=%s.",
        places,
        why_no_gpu(),
        [f"/cpu:{index}" for index in range(min(count, 2))] + (["…"] if count > 2 else []),
    )


def physical_of_logical_gpus() -> list[int]:
    """Return for each GPU of this host, as a device string counts them, the number of the physical one that it is of.

    They differ where `tf.config.set_logical_device_configuration` has split one.
    """
    parts = [len(_logical_configuration(gpu)) for gpu in tf.config.list_physical_devices("GPU")]
    return [physical for physical, count in enumerate(parts) for _ in range(max(count, 1))]


def parts_of_one_gpu(devices: Sequence[str]) -> list[str]:
    """Return those of `devices`, device strings of this process, that are logical parts of a GPU that is split."""
    physical = physical_of_logical_gpus()
    matches = [(device, _DEVICE.match(device)) for device in devices]
    return [
        device
        for device, match in matches
        if match is not None
        and match[1].lower() == "gpu"
        and match[2] != "*"
        # Of the GPUs of another host nothing is known.
        and not device.lower().startswith("/job:")
        and int(match[2]) < len(physical)
        and physical.count(physical[int(match[2])]) > 1
    ]


def add_logical_devices(config: Any, devices: Sequence[str]) -> Any:
    """Return a `tf.compat.v1.ConfigProto` like `config`, with the logical devices of this process.

    Those are as many CPU devices as `devices` need, and the logical GPUs for which `tf.config` was told to split one,
    unless `config` says how to split them itself.
    """
    needed = [int(match[2]) + 1 for match in map(_DEVICE.match, devices) if match and match[1].lower() == "cpu"]
    adapted = tf.compat.v1.ConfigProto()
    adapted.CopyFrom(config)
    adapted.device_count["CPU"] = max([*needed, adapted.device_count["CPU"], 1])
    options = adapted.gpu_options
    configurations = [_logical_configuration(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    if any(configurations) and not options.experimental.virtual_devices:
        # TensorFlow wants an entry for each visible GPU; one that is empty leaves it whole.
        visible = [int(each) for each in options.visible_device_list.split(",") if each.strip()]
        for index in visible or range(len(configurations)):
            options.experimental.virtual_devices.add(
                memory_limit_mb=[logical.memory_limit for logical in configurations[index]]
            )
    return adapted


def _logical_configuration(gpu: Any) -> list[Any]:
    """How a physical GPU is split; empty if it is not."""
    configuration = tf.config.get_logical_device_configuration(gpu) or []
    return [logical for logical in configuration if logical.memory_limit is not None]


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
            "as you name: '/cpu:0', '/cpu:1', …; a GPU is split into logical ones by "
            "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=MB), "
            "…]), before anything runs."
        )
