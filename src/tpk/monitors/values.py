"""Reported values: scalars, images and distributions, checked and converted to one form."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from tpk.errors import TpkError


class ReportedValueError(TpkError, ValueError):
    """Raised when a reported value has the wrong type or shape.

    Cure:
        Report a scalar as one number (``float(value)``, or ``value.mean()`` of an array), an image as an array of
        height, width and channels, and many values by `put_histogram`.
    """


def as_scalar(name: str, value: Any) -> int | float:
    """Return `value` as a Python int or float.

    Args:
        name: the name of the scalar, for messages.
        value: a real number of Python, NumPy or any library whose zero-dimensional arrays NumPy can read.

    Raises:
        ReportedValueError: if it is something else, such as an array with dimensions, or a string.
    """
    _check_name(name, "scalar")
    if isinstance(value, numbers.Integral):
        return int(value)
    try:
        array = np.asarray(value)
    except Exception as error:  # such as TensorFlow's, for a symbolic tensor
        raise ReportedValueError(
            f"scalar {name!r}: expected a number, got {value!r}. Report its value, such as the result of sess.run."
        ) from error
    if array.ndim != 0:
        raise ReportedValueError(
            f"scalar {name!r}: expected one number, got an array of shape {array.shape}. Report its mean or "
            "a single element, or use put_histogram."
        )
    if array.dtype.kind in "biu":
        return int(array)
    if not _is_float(array):
        raise ReportedValueError(
            f"scalar {name!r}: expected a real number, got {value!r} of type {type(value).__name__}."
        )
    return float(array)


def as_images(name: str, images: Any) -> np.ndarray:
    """Return `images` as ``uint8`` of shape ``(number, height, width, channels)``.

    Args:
        name: the name of the images, for messages.
        images: an array of shape ``(height, width)``, ``(height, width, channels)`` or ``(number, height,
            width, channels)`` with 1, 3 (RGB) or 4 (RGBA) channels. Integers or floats from 0 to 255: values
            outside this range are clipped, NaN becomes 0.

    Raises:
        ReportedValueError: if the array has another shape or dtype.
    """
    _check_name(name, "image")
    array = np.asarray(images)
    shape = array.shape
    if array.ndim == 2:
        array = array[None, :, :, None]
    elif array.ndim == 3:
        array = array[None]
    if array.ndim != 4 or array.shape[-1] not in (1, 3, 4) or array.size == 0:
        raise ReportedValueError(
            f"image {name!r}: expected the shape (height, width), (height, width, channels) or (number, "
            f"height, width, channels) with 1, 3 or 4 channels, got {shape}. Many grey images need a last "
            "axis: array[..., None]."
        )
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iu" and not _is_float(array):
        raise ReportedValueError(
            f"image {name!r}: expected numbers from 0 to 255, got dtype {array.dtype}. "
            "Multiply a mask by 255: 255 * array."
        )
    return np.rint(np.clip(np.nan_to_num(array.astype(np.float64), nan=0.0), 0, 255)).astype(np.uint8)


def as_distribution(name: str, values: Any) -> np.ndarray:
    """Return the numbers in `values`, which may be NaN or infinite, as ``float64`` of shape ``(number,)``.

    Args:
        name: the name of the distribution, for messages.
        values: real numbers in an array of any shape.

    Raises:
        ReportedValueError: if they are not real numbers, or there are none.
    """
    _check_name(name, "histogram")
    array = np.asarray(values)
    if array.size == 0 or (array.dtype.kind not in "biu" and not _is_float(array)):
        raise ReportedValueError(
            f"histogram {name!r}: expected real numbers, got shape {array.shape} and dtype {array.dtype}."
        )
    return array.astype(np.float64).ravel()


def json_number(value: int | float) -> int | float | str:
    """Return `value` in a form that JSON can hold.

    NaN and the infinities become the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, as in the JSON mapping of
    protocol buffers. `float` in Python and ``Number`` in JavaScript convert them back.
    """
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _is_float(array: np.ndarray) -> bool:
    # Float types from outside NumPy, such as bfloat16, have the kind "V", like records.
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def _check_name(name: Any, kind: str) -> None:
    if not isinstance(name, str) or not name:
        raise ReportedValueError(f"the name of a {kind} must be a non-empty string, got {name!r}.")
