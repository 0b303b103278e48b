"""PNG files, written without an image library."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_COLOR_TYPE = {1: 0, 3: 2, 4: 6}  # channels → grey, RGB, RGBA


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
