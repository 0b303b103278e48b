"""Augmentors that flip, transpose and resize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpk_tensorpack.dataflow.imgaug.base import ImageAugmentor
from tpk_tensorpack.dataflow.imgaug.transform import (
    INTER_LINEAR,
    Array,
    FlipTransform,
    NoOpTransform,
    ResizeTransform,
    TransposeTransform,
)
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.argtools import shape2d

__all__ = ["Flip", "RandomResize", "Resize", "ResizeShortestEdge", "Transpose"]

_ATTEMPTS = 51


class Flip(ImageAugmentor):
    """Flip an image with a given probability.

    Args:
        horiz: whether to flip left to right.
        vert: whether to flip top to bottom.
        prob: the probability of a flip.

    Raises:
        ValueError: both directions or neither are given; use two augmentors to flip in both.
    """

    def __init__(self, horiz: bool = False, vert: bool = False, prob: float = 0.5) -> None:
        if bool(horiz) == bool(vert):
            raise ValueError("Flip: expected one of horiz=True and vert=True; for both directions, use two Flips")
        self._init({"horiz": horiz, "vert": vert, "prob": prob})

    def get_transform(self, img: Array) -> Any:
        """Decide whether to flip."""
        if self._rand_range() >= self.prob:
            return NoOpTransform()
        return FlipTransform(*img.shape[:2], self.horiz)


class Transpose(ImageAugmentor):
    """Swap rows and columns of an image with a given probability.

    Args:
        prob: the probability of a transposition.
    """

    def __init__(self, prob: float = 0.5) -> None:
        self.prob = prob

    def get_transform(self, _: Array) -> Any:
        """Decide whether to transpose."""
        return TransposeTransform() if self.rng.rand() < self.prob else NoOpTransform()


class Resize(ImageAugmentor):
    """Resize an image to a given size.

    Args:
        shape: height and width, or one number for both.
        interp: an OpenCV interpolation flag.
    """

    def __init__(self, shape: int | Sequence[int], interp: int = INTER_LINEAR) -> None:
        self._init({"shape": tuple(shape2d(shape)), "interp": interp})

    def get_transform(self, img: Array) -> Any:
        """Return the transform for an image of this size."""
        return ResizeTransform(*img.shape[:2], *self.shape, self.interp)


class ResizeShortestEdge(ImageAugmentor):
    """Resize an image so that its shorter side has a given length, and preserve its aspect ratio.

    Args:
        size: the length of the shorter side, in pixels.
        interp: an OpenCV interpolation flag.
    """

    def __init__(self, size: int, interp: int = INTER_LINEAR) -> None:
        self._init({"size": int(size), "interp": interp})

    def get_transform(self, img: Array) -> Any:
        """Return the transform for an image of this size."""
        h, w = img.shape[:2]
        scale = self.size / min(h, w)
        new_h, new_w = (self.size, int(scale * w + 0.5)) if h < w else (int(scale * h + 0.5), self.size)
        return ResizeTransform(h, w, new_h, new_w, self.interp)


class RandomResize(ImageAugmentor):
    """Resize an image to a random width and height.

    If 51 consecutive draws change the aspect ratio too much, the image is left unchanged and a warning is logged.

    Args:
        xrange: the range of widths: integers for pixels, floats for fractions of the image's width.
        yrange: the range of heights. None preserves the aspect ratio, and requires ``aspect_ratio_thres=0``.
        minimum: the least width and height, in pixels.
        aspect_ratio_thres: the maximum relative change of the aspect ratio; 0 preserves it and draws from `xrange`
            only.
        interp: an OpenCV interpolation flag.

    Raises:
        ConfigError: a range is invalid, the ranges are of different kinds, or `yrange` is missing.
    """

    def __init__(
        self,
        xrange: tuple[float, float],
        yrange: tuple[float, float] | None = None,
        minimum: tuple[int, int] = (0, 0),
        aspect_ratio_thres: float = 0.15,
        interp: int = INTER_LINEAR,
    ) -> None:
        if yrange is None and aspect_ratio_thres != 0:
            raise CheckError("RandomResize without yrange= preserves the aspect ratio: pass aspect_ratio_thres=0")
        if min(minimum) < 0 or aspect_ratio_thres < 0:
            raise CheckError(f"RandomResize: minimum={minimum}, aspect_ratio_thres={aspect_ratio_thres}: negative")
        kinds = {isinstance(end, float) for ends in (xrange, yrange) if ends is not None for end in ends}
        if len(kinds) > 1:
            raise CheckError(
                f"RandomResize(xrange={xrange}, yrange={yrange}): expected two ranges of integers (pixels) or of "
                "floating-point numbers (fractions of the size)"
            )
        self._in_pixels = kinds == {False}
        self._init({"xrange": xrange, "yrange": yrange, "minimum": minimum})
        self._init({"aspect_ratio_thres": aspect_ratio_thres, "interp": interp})

    def get_transform(self, img: Array) -> Any:
        """Draw the size."""
        h, w = img.shape[:2]
        for _ in range(_ATTEMPTS):
            new_h, new_w = self._draw(h, w)
            ratio = w / h
            if self.aspect_ratio_thres == 0 or abs(new_w / new_h - ratio) / ratio < self.aspect_ratio_thres:
                return ResizeTransform(h, w, new_h, new_w, self.interp)
        logger.warning("%r: none of %d draws preserves the aspect ratio well enough; image unchanged", self, _ATTEMPTS)
        return ResizeTransform(h, w, h, w, self.interp)

    def _draw(self, h: int, w: int) -> tuple[int, int]:
        x = self._rand_range(*self.xrange)
        if self.aspect_ratio_thres == 0:
            x_scale = x / w if self._in_pixels else x
            x_scale = max(x_scale, self.minimum[0] / w, self.minimum[1] / h)
            width, height = w * x_scale, h * x_scale
        else:
            y = self._rand_range(*self.yrange)
            width, height = (x, y) if self._in_pixels else (x * w, y * h)
            width, height = max(width, self.minimum[0]), max(height, self.minimum[1])
        return max(int(height + 0.5), 1), max(int(width + 0.5), 1)
