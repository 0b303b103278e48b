"""Arrays that TensorFlow takes without a copy, and copies of arrays that may be written again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, c_char
from math import prod
from typing import Any, TypeAlias

import numpy as np

ArraySpec: TypeAlias = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of an array."""

Allocate: TypeAlias = Callable[[Sequence[ArraySpec]], list[np.ndarray[Any, Any]]]
"""Makes the arrays of one datapoint, uninitialized."""

ALIGNMENT = 64
"""Bytes; TensorFlow's `EIGEN_MAX_ALIGN_BYTES`. TensorFlow copies arrays that are not aligned to it."""

FEW_BYTES = 1 << 17
"""Arrays up to this size need not be aligned: the copy by TensorFlow costs less."""

UNCHANGING = frozenset({bool, int, float, complex, str, bytes, type(None)})
"""Immutable types."""


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Return an uninitialized, C-contiguous array aligned to `ALIGNMENT` bytes.

    Args:
        shape: as for `numpy.empty`.
        dtype: any dtype; arrays of Python objects are not aligned, because TensorFlow copies them anyway.
    """
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    if dtype.hasobject or size == 0:
        return np.empty(shape, dtype)
    block = np.empty(size + ALIGNMENT, np.uint8)
    # The faster way to the address; `block.ctypes` and `block.__array_interface__` build objects around it.
    start = -addressof(c_char.from_buffer(block)) % ALIGNMENT
    return np.ndarray(shape, dtype, block, start)


def allocate_arrays(arrays: Sequence[ArraySpec]) -> list[np.ndarray[Any, Any]]:
    """Make arrays, aligned if they are large; an `Allocate`."""
    return [
        aligned_empty(shape, dtype) if prod(shape) * dtype.itemsize > FEW_BYTES else np.empty(shape, dtype)
        for shape, dtype in arrays
    ]


def copy_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a C-contiguous copy, which is aligned if it is large, so that TensorFlow does not copy it again.

    Args:
        array: an array, not of a subclass.
    """
    return array.copy() if array.nbytes <= FEW_BYTES else aligned_copy(array)


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an aligned, C-contiguous copy."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def copy_arrays(datapoint: Any) -> Any:
    """Return a datapoint with copies of all arrays in it, including arrays in nested lists, tuples and dicts."""
    kind = type(datapoint)
    if kind is np.ndarray:
        return copy_array(datapoint)
    if kind in UNCHANGING:
        return datapoint
    if kind is list or kind is tuple:
        # There may be very many words or numbers.
        return kind(datapoint if UNCHANGING.issuperset(map(type, datapoint)) else map(copy_arrays, datapoint))
    if isinstance(datapoint, Mapping):
        return {key: copy_arrays(value) for key, value in datapoint.items()}
    if isinstance(datapoint, tuple) and hasattr(datapoint, "_make"):  # a named one
        return datapoint._make(map(copy_arrays, datapoint))
    if isinstance(datapoint, (list, tuple)):
        return list(map(copy_arrays, datapoint))
    return datapoint.copy() if isinstance(datapoint, np.ndarray) else datapoint
