"""Images as arrays, and as PNG files, written without an image library."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

_COLOR_TYPE = {1: 0, 3: 2, 4: 6}  # channels → grey, RGB, RGBA


def is_floating(array: np.ndarray) -> bool:
    """Whether the dtype of an array is floating-point."""
    # Float types from outside NumPy, such as bfloat16, have the kind "V", like records.
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def as_pixels(images: Any) -> np.ndarray | None:
    """Return images as ``uint8`` of shape ``(number, height, width, channels)``, or None if they are not images.

    Args:
        images: an array of shape ``(height, width)``, ``(height, width, channels)`` or ``(number, height, width,
            channels)`` with 1, 3 (RGB) or 4 (RGBA) channels. Integers or floats from 0 to 255: values outside this
            range are clipped, NaN becomes 0.
    """
    array = np.asarray(images)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3:
        array = array[None]
    is_image = array.ndim == 4 and array.shape[-1] in (1, 3, 4) and 0 not in array.shape
    if not is_image or not (array.dtype.kind in "iu" or is_floating(array)):
        return None
    if array.dtype == np.uint8:
        return array
    return np.rint(np.clip(np.nan_to_num(array.astype(np.float64), nan=0.0), 0, 255)).astype(np.uint8)


def encode_png(image: np.ndarray) -> bytes:
    """Return `image` as the content of a PNG file (ISO/IEC 15948).

    Args:
        image: ``uint8`` of shape ``(height, width, channels)`` with 1, 3 or 4 channels.
    """
    height, width, channels = image.shape
    header = struct.pack(">2I5B", width, height, 8, _COLOR_TYPE[channels], 0, 0, 0)
    rows = image.reshape(height, width * channels)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    chunks = (
        _chunk(b"IHDR", header),
        _chunk(b"IDAT", zlib.compress(unfiltered.tobytes())),
        _chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
