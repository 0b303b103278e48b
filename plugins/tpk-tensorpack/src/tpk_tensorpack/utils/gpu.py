"""GPUs of this host."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import tensorflow as tf

from tpk_tensorpack.utils.utils import change_env

__all__ = ["change_gpu", "get_nr_gpu", "get_num_gpu"]


def change_gpu(val: int | str | list[int] | None) -> AbstractContextManager[None]:
    """Return a context in which ``CUDA_VISIBLE_DEVICES`` is `val`; none at all for None or -1.

    It counts in processes that are started within: this one has looked at the variable when TensorFlow started.
    """
    if isinstance(val, (list, tuple)):
        val = ",".join(map(str, val))
    return change_env("CUDA_VISIBLE_DEVICES", "-1" if val is None else str(val))


def get_num_gpu() -> int:
    """Return how many GPUs there are for this process: those in ``CUDA_VISIBLE_DEVICES``, else those of TensorFlow."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip() not in ("", "-1")])
    return len(tf.config.list_physical_devices("GPU"))


get_nr_gpu = get_num_gpu
