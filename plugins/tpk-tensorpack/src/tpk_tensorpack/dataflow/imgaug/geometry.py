"""Augmentors that shift, rotate, zoom and shear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.imgaug.base import ImageAugmentor
from tpk_tensorpack.dataflow.imgaug.transform import (
    BORDER_REPLICATE,
    INTER_LINEAR,
    Array,
    CropTransform,
    TransformList,
    WarpAffineTransform,
)
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.opencv import cv2

__all__ = ["Affine", "Rotation", "RotationAndCropValid", "Shift"]


class Shift(ImageAugmentor):
    """Shift an image by whole pixels.

    Args:
        horiz_frac: the maximum shift to the left or right, as a fraction of the width.
        vert_frac: the maximum shift up or down, as a fraction of the height.
        border: an OpenCV border mode.
        border_value: the value for a constant border.

    Raises:
        ConfigError: a fraction is not between 0 and 1.
    """

    def __init__(
        self,
        horiz_frac: float = 0,
        vert_frac: float = 0,
        border: int = BORDER_REPLICATE,
        border_value: Any = 0,
    ) -> None:
        _check_parts("Shift", horiz_frac, vert_frac)
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Draw the distances."""
        h, w = img.shape[:2]
        dx, dy = _draw_shift(self, w, h, self.horiz_frac, self.vert_frac)
        mat = np.array([[1, 0, dx], [0, 1, dy]], np.float32)
        return WarpAffineTransform(mat, (w, h), borderMode=self.border, borderValue=self.border_value)


class Rotation(ImageAugmentor):
    """Rotate an image about a random center.

    Args:
        max_deg: the largest angle, in degrees, in either direction.
        center_range: the range of the center, as fractions of width and height.
        interp: an OpenCV interpolation flag.
        border: an OpenCV border mode.
        step_deg: draw multiples of this divisor of 180; requires ``max_deg=180``.
        border_value: the value beyond the border, with a constant border.

    Raises:
        ConfigError: `step_deg` and `max_deg` do not match.
    """

    def __init__(
        self,
        max_deg: float,
        center_range: tuple[float, float] = (0, 1),
        interp: int = INTER_LINEAR,
        border: int = BORDER_REPLICATE,
        step_deg: float | None = None,
        border_value: Any = 0,
    ) -> None:
        _check_steps("Rotation", max_deg, step_deg)
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Draw center and angle."""
        h, w = img.shape[:2]
        center = np.array([w, h]) * self._rand_range(*self.center_range, size=(2,))
        mat = _rotation(center - 0.5, _draw_angle(self))
        return WarpAffineTransform(
            mat, (w, h), interp=self.interp, borderMode=self.border, borderValue=self.border_value
        )


class RotationAndCropValid(ImageAugmentor):
    """Rotate an image about its center, and crop the largest rectangle without a border.

    The size of the result depends on the angle.

    Args:
        max_deg: the largest angle, in degrees, in either direction.
        interp: an OpenCV interpolation flag.
        step_deg: draw multiples of this divisor of 180; requires ``max_deg=180``.

    Raises:
        ConfigError: `step_deg` and `max_deg` do not match.
    """

    def __init__(self, max_deg: float, interp: int = INTER_LINEAR, step_deg: float | None = None) -> None:
        _check_steps("RotationAndCropValid", max_deg, step_deg)
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Draw the angle."""
        h, w = img.shape[:2]
        degrees = _draw_angle(self)
        warp = WarpAffineTransform(_rotation((w * 0.5 - 0.5, h * 0.5 - 0.5), degrees), (w, h), interp=self.interp)
        width, height = self.largest_rotated_rect(w, h, degrees)
        width, height = min(width, w), min(height, h)
        crop = CropTransform(int(h * 0.5 - height * 0.5), int(w * 0.5 - width * 0.5), height, width)
        return TransformList([warp, crop])

    @staticmethod
    def largest_rotated_rect(w: float, h: float, angle: float) -> tuple[int, int]:
        """Return width and height of the largest rectangle within an image rotated about its center.

        The formula is from https://stackoverflow.com/a/16778797.

        Args:
            w: the width of the image.
            h: the height of the image.
            angle: in degrees.
        """
        if w <= 0 or h <= 0:
            return 0, 0
        sin, cos = abs(math.sin(math.radians(angle))), abs(math.cos(math.radians(angle)))
        long, short = max(w, h), min(w, h)
        if short <= 2 * sin * cos * long:
            # Two of the corners touch the longer side.
            half = 0.5 * short
            width, height = (half / sin, half / cos) if w >= h else (half / cos, half / sin)
        else:
            # Each corner touches a different side.
            double = cos * cos - sin * sin
            width, height = (w * cos - h * sin) / double, (h * cos - w * sin) / double
        return round(width), round(height)


class Affine(ImageAugmentor):
    """Translate, rotate, zoom and shear an image about its center.

    Args:
        scale: the range of the zoom factor; None for no zoom.
        translate_frac: the maximum translation, as fractions of width and height; None for no translation.
        rotate_max_deg: the largest angle, in degrees, in either direction.
        shear: the largest angle of the shear, in degrees, in either direction.
        interp: an OpenCV interpolation flag.
        border: an OpenCV border mode.
        border_value: the value for a constant border.

    Raises:
        ConfigError: a value is out of range.
    """

    def __init__(
        self,
        scale: tuple[float, float] | None = None,
        translate_frac: tuple[float, float] | None = None,
        rotate_max_deg: float = 0.0,
        shear: float = 0.0,
        interp: int = INTER_LINEAR,
        border: int = BORDER_REPLICATE,
        border_value: Any = 0,
    ) -> None:
        if scale is not None and not (len(scale) == 2 and 0 < scale[0] <= scale[1]):
            raise CheckError(f"Affine(scale={scale}): expected two numbers above 0, the smaller one first")
        if translate_frac is not None:
            _check_parts("Affine", *translate_frac)
        if not (0 <= rotate_max_deg <= 180 and 0 <= shear <= 180):
            raise CheckError(f"Affine(rotate_max_deg={rotate_max_deg}, shear={shear}): expected degrees from 0 to 180")
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Draw zoom, distances, shear and angle."""
        h, w = img.shape[:2]
        scale = 1.0 if self.scale is None else self._rand_range(*self.scale)
        dx, dy = (0, 0) if self.translate_frac is None else _draw_shift(self, w, h, *self.translate_frac)
        shear = math.radians(float(self._rand_range(-self.shear, self.shear))) if self.shear else 0.0
        degrees = self._rand_range(-self.rotate_max_deg, self.rotate_max_deg)
        center = np.array([w * 0.5 - 0.5, h * 0.5 - 0.5])
        linear = _rotation(center, degrees, scale)[:, :2] @ [[1, math.sin(shear)], [0, math.cos(shear)]]
        mat = np.column_stack([linear, center - linear @ center + [dx, dy]])
        return WarpAffineTransform(
            mat, (w, h), interp=self.interp, borderMode=self.border, borderValue=self.border_value
        )


def _check_parts(owner: str, *parts: float) -> None:
    if not all(0 <= part < 1 for part in parts):
        raise CheckError(f"{owner}: {', '.join(map(str, parts))}: expected parts of the size, from 0 to less than 1")


def _check_steps(owner: str, max_deg: float, step_deg: float | None) -> None:
    if step_deg is not None and not (max_deg == 180 and 180 % step_deg == 0):
        raise CheckError(f"{owner}(max_deg={max_deg}, step_deg={step_deg}): expected max_deg=180, and a divisor of it")


def _draw_shift(augmentor: Any, w: int, h: int, horiz: float, vert: float) -> tuple[float, float]:
    dx = np.round(augmentor._rand_range(-horiz * w, horiz * w))
    dy = np.round(augmentor._rand_range(-vert * h, vert * h))
    return float(dx), float(dy)


def _draw_angle(augmentor: Any) -> float:
    degrees = float(augmentor._rand_range(-augmentor.max_deg, augmentor.max_deg))
    return degrees if augmentor.step_deg is None else degrees // augmentor.step_deg * augmentor.step_deg


def _rotation(center: Any, degrees: float, scale: float = 1.0) -> Array:
    x, y = center
    return cv2.getRotationMatrix2D((float(x), float(y)), float(degrees), float(scale))
