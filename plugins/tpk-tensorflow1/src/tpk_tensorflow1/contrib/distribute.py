"""`tf.contrib.distribute`: the strategies of `tf.distribute`, including the arguments that it has dropped."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

__all__ = ["MirroredStrategy"]

v1 = tf.compat.v1


def MirroredStrategy(
    devices: Any = None,
    num_gpus: int | None = None,
    num_gpus_per_worker: int | None = None,
    cross_device_ops: Any = None,
    auto_shard_dataset: bool = False,
    cross_tower_ops: Any = None,
) -> Any:
    """Return a `tf.distribute.MirroredStrategy`. Without GPUs, it runs on the CPU, with a warning.

    Args:
        devices: the devices; by default all GPUs.
        num_gpus: the number of GPUs, instead of `devices`; 0 for the CPU.
        num_gpus_per_worker: the newer name of `num_gpus`.
        cross_device_ops: how to reduce values and copy them between devices.
        auto_shard_dataset: without effect on one host.
        cross_tower_ops: the older name of `cross_device_ops`.
    """
    number = num_gpus if num_gpus_per_worker is None else num_gpus_per_worker
    if number and not tf.config.list_physical_devices("GPU"):
        v1.logging.warning("TensorFlow sees no GPU, so the MirroredStrategy for %d GPUs runs on the CPU.", number)
        number = 0
    if number is not None:
        devices = [f"/device:GPU:{index}" for index in range(number)] or ["/device:CPU:0"]
    return v1.distribute.MirroredStrategy(devices, cross_device_ops or cross_tower_ops)


__getattr__ = finder_in("tf.contrib.distribute", __all__, v1.distribute, v1.distribute.experimental)
