"""GPUs of this host."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import tensorflow as tf

from tpk_tensorpack.utils.utils import change_env

__all__ = ["change_gpu", "get_nr_gpu", "get_num_gpu"]


def change_gpu(val: int | str | list[int] | None) -> AbstractContextManager[None]:
    """Return a context that sets ``CUDA_VISIBLE_DEVICES`` to `val`; None or -1 hide all GPUs.

    It affects processes that are started within it: TensorFlow has already read the variable in this process.
    """
    if isinstance(val, (list, tuple)):
        val = ",".join(map(str, val))
    return change_env("CUDA_VISIBLE_DEVICES", "-1" if val is None else str(val))


def get_num_gpu() -> int:
    """Return the number of GPUs of this process, from ``CUDA_VISIBLE_DEVICES`` or else from TensorFlow."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip() not in ("", "-1")])
    return len(tf.config.list_physical_devices("GPU"))


get_nr_gpu = get_num_gpu
