"""`tf.contrib.data`, which is `tf.data.experimental` and `tf.data` today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

__all__ = ["batch_and_drop_remainder", "padded_batch_and_drop_remainder", "sliding_window_batch", "sloppy_interleave"]

v1 = tf.compat.v1

Function = Callable[..., Any]


def batch_and_drop_remainder(batch_size: int) -> Function:
    """Return a function that makes batches of a dataset, without a smaller last one."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size: int, padded_shapes: Any, padding_values: Any = None) -> Function:
    """Return a function that makes padded batches of a dataset, without a smaller last one."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def sliding_window_batch(
    window_size: int, stride: int | None = None, window_shift: int | None = None, window_stride: int = 1
) -> Function:
    """Return a function that makes batches of the elements in a window that slides over a dataset.

    Args:
        window_size: the number of elements in a window.
        stride: the older name of `window_shift`.
        window_shift: by how many elements the window moves, by default 1.
        window_stride: the distance between the elements of a window.
    """
    shift = window_shift or stride or 1

    def batched(dataset: Any) -> Any:
        windows = dataset.window(window_size, shift, window_stride, drop_remainder=True)
        return windows.flat_map(lambda *parts: _zipped(parts).batch(window_size))

    return batched


def _zipped(windows: tuple[Any, ...]) -> Any:
    return windows[0] if len(windows) == 1 else v1.data.Dataset.zip(windows)


def sloppy_interleave(map_func: Function, cycle_length: int, block_length: int = 1) -> Function:
    """Return a function that interleaves datasets, in an order that depends on timing."""
    return v1.data.experimental.parallel_interleave(map_func, cycle_length, block_length, sloppy=True)


__getattr__ = finder_in("tf.contrib.data", __all__, v1.data.experimental, v1.data)
