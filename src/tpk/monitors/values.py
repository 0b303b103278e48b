"""Reported values: scalars, images and distributions, checked and converted to one form."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from tpk.errors import TpkError
from tpk.graph.reports.png import as_pixels, is_floating
from tpk.text import describe_value


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
    if not is_floating(array):
        raise ReportedValueError(
            f"scalar {name!r}: expected a real number, got {value!r} of type {type(value).__name__}."
        )
    return float(array)


def as_images(name: str, images: Any) -> np.ndarray:
    """Return `images` as ``uint8`` of shape ``(number, height, width, channels)``.

    Args:
        name: the name of the images, for messages.
        images: see `as_pixels`.

    Raises:
        ReportedValueError: if the array has another shape or dtype.
    """
    _check_name(name, "image")
    pixels = as_pixels(images)
    if pixels is None:
        raise ReportedValueError(
            f"image {name!r}: expected numbers from 0 to 255 of the shape (height, width), (height, width, channels) "
            "or (number, height, width, channels) with 1, 3 or 4 channels, got "
            f"{describe_value(np.asarray(images))}. Many grey images need a last axis: array[..., None]. Multiply a "
            "mask by 255: 255 * array."
        )
    return pixels


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
    if array.size == 0 or (array.dtype.kind not in "biu" and not is_floating(array)):
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


def _check_name(name: Any, kind: str) -> None:
    if not isinstance(name, str) or not name:
        raise ReportedValueError(f"the name of a {kind} must be a non-empty string, got {name!r}.")
