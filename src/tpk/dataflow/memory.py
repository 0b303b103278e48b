"""Memory that TensorFlow takes without copying it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

ALIGNMENT = 64
"""Bytes; TensorFlow's `EIGEN_MAX_ALIGN_BYTES`. It copies an array that starts elsewhere before it uses it."""


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Return an uninitialized C-contiguous array that starts on a multiple of `ALIGNMENT` bytes.

    Args:
        shape: as for `numpy.empty`.
        dtype: any dtype; Python objects get an ordinary array, since TensorFlow copies those anyway.
    """
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    if dtype.hasobject or size == 0:
        return np.empty(shape, dtype)
    block = np.empty(size + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    array: np.ndarray[Any, Any] = block[start : start + size].view(dtype).reshape(shape)
    return array
