"""Distinct colors."""

from __future__ import annotations

import colorsys

import numpy as np

__all__ = ["PALETTE_RGB"]

_GOLDEN = 0.6180339887498949
_LIGHT = ((0.85, 0.95), (0.95, 0.6), (0.6, 0.85))

PALETTE_RGB = np.asarray(
    [colorsys.hsv_to_rgb(number * _GOLDEN % 1, *_LIGHT[number % len(_LIGHT)]) for number in range(79)], np.float32
) * np.float32(255)
"""79 colors as float32 of shape (79, 3): red, green and blue from 0 to 255. Hues follow the golden ratio."""
