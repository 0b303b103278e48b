"""Augmentors that crop an image or erase a part of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tpk_tensorpack.dataflow.imgaug.base import ImageAugmentor
from tpk_tensorpack.dataflow.imgaug.misc import ResizeShortestEdge
from tpk_tensorpack.dataflow.imgaug.transform import (
    INTER_LINEAR,
    Array,
    CropTransform,
    PhotometricTransform,
    ResizeTransform,
    TransformList,
)
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.argtools import shape2d
from tpk_tensorpack.utils.develop import log_deprecated

__all__ = ["CenterCrop", "GoogleNetRandomCropAndResize", "RandomCrop", "RandomCropRandomShape", "RandomCutout"]


class RandomCrop(ImageAugmentor):
    """Crop a rectangle of a given size at a random position.

    Args:
        crop_shape: height and width, or one number for both.

    Raises:
        InputError: an image is smaller than the crop.
    """

    def __init__(self, crop_shape: int | Sequence[int]) -> None:
        self._init({"crop_shape": tuple(shape2d(crop_shape))})

    def get_transform(self, img: Array) -> Any:
        """Choose the position."""
        height, width = self.crop_shape
        _check_fits(self, img, height, width)
        y0 = self.rng.randint(img.shape[0] - height + 1)
        x0 = self.rng.randint(img.shape[1] - width + 1)
        return CropTransform(y0, x0, height, width)


class CenterCrop(ImageAugmentor):
    """Crop the center.

    Args:
        crop_shape: height and width, or one number for both.

    Raises:
        InputError: an image is smaller than the crop.
    """

    def __init__(self, crop_shape: int | Sequence[int]) -> None:
        self._init({"crop_shape": shape2d(crop_shape)})

    def get_transform(self, img: Array) -> Any:
        """Return the crop."""
        height, width = self.crop_shape
        _check_fits(self, img, height, width)
        return CropTransform((img.shape[0] - height) // 2, (img.shape[1] - width) // 2, height, width)


class RandomCropRandomShape(ImageAugmentor):
    """Crop a rectangle with a random size and position.

    Args:
        wmin: the smallest width.
        hmin: the smallest height.
        wmax: the largest width; None for the width of the image.
        hmax: the largest height; None for the height of the image.
        max_aspect_ratio: has no effect, as in tensorpack.

    Raises:
        InputError: the sizes exceed the image.
    """

    def __init__(
        self,
        wmin: int,
        hmin: int,
        wmax: int | None = None,
        hmax: int | None = None,
        max_aspect_ratio: float | None = None,
    ) -> None:
        if max_aspect_ratio is not None:
            log_deprecated("RandomCropRandomShape(max_aspect_ratio=)", "It has no effect.", max_num_warnings=1)
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Choose size and position."""
        hmax, wmax = self.hmax or img.shape[0], self.wmax or img.shape[1]
        _check_fits(self, img, max(hmax, self.hmin), max(wmax, self.wmin))
        height = self.rng.randint(self.hmin, hmax + 1)
        width = self.rng.randint(self.wmin, wmax + 1)
        # As in tensorpack, the last position is never drawn, and no number is drawn for a single position.
        y0 = 0 if height == img.shape[0] else self.rng.randint(img.shape[0] - height)
        x0 = 0 if width == img.shape[1] else self.rng.randint(img.shape[1] - width)
        return CropTransform(y0, x0, height, width)


class GoogleNetRandomCropAndResize(ImageAugmentor):
    """Crop a rectangle with a random area and aspect ratio, and resize it to a square.

    This is the augmentation of "Going Deeper with Convolutions", section 6, as implemented by
    [fb.resnet.torch](https://github.com/facebookarchive/fb.resnet.torch). If ten random rectangles all exceed the
    image, the shortest edge is resized and the center cropped.

    Args:
        crop_area_fraction: the range of areas, relative to the area of the image.
        aspect_ratio_range: the range of width/height or height/width ratios.
        target_shape: the side of the square.
        interp: an OpenCV interpolation flag.
    """

    def __init__(
        self,
        crop_area_fraction: tuple[float, float] = (0.08, 1.0),
        aspect_ratio_range: tuple[float, float] = (0.75, 1.333),
        target_shape: int = 224,
        interp: int = INTER_LINEAR,
    ) -> None:
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Choose the rectangle."""
        h, w = img.shape[:2]
        size = self.target_shape
        for _ in range(10):
            area = self.rng.uniform(*self.crop_area_fraction) * h * w
            ratio = self.rng.uniform(*self.aspect_ratio_range)
            width, height = int(math.sqrt(area * ratio) + 0.5), int(math.sqrt(area / ratio) + 0.5)
            if self.rng.uniform() < 0.5:
                width, height = height, width
            if height <= h and width <= w:
                x0 = self.rng.randint(0, w - width + 1)
                y0 = self.rng.randint(0, h - height + 1)
                crop = CropTransform(y0, x0, height, width)
                return TransformList([crop, ResizeTransform(height, width, size, size, self.interp)])
        resize = ResizeShortestEdge(size, self.interp).get_transform(img)
        y0, x0 = (resize.new_h - size) // 2, (resize.new_w - size) // 2
        return TransformList([resize, CropTransform(y0, x0, size, size)])


class RandomCutout(ImageAugmentor):
    """Paint over a rectangle at a random position, in place: [cutout](https://arxiv.org/abs/1708.04552).

    Args:
        h_range: the height, or a pair ``(low, high)`` to draw it from, excluding `high`.
        w_range: the width, likewise.
        fill: the fill value.

    Raises:
        InputError: an image is smaller than the rectangle.
    """

    def __init__(self, h_range: int | tuple[int, int], w_range: int | tuple[int, int], fill: float = 0.0) -> None:
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Choose size and position."""
        height, width = self._size(self.h_range), self._size(self.w_range)
        _check_fits(self, img, height, width)
        x0 = self.rng.randint(0, img.shape[1] - width + 1)
        y0 = self.rng.randint(0, img.shape[0] - height + 1)

        def paint(img: Array) -> Array:
            img[y0 : y0 + height, x0 : x0 + width] = self.fill
            return img

        return PhotometricTransform(paint, "cutout")

    def _size(self, given: int | Sequence[int]) -> int:
        return given if isinstance(given, int) else self.rng.randint(*given)


def _check_fits(augmentor: ImageAugmentor, img: Array, height: int, width: int) -> None:
    if img.shape[0] < height or img.shape[1] < width:
        raise CheckError(
            f"{augmentor!r} got an image of shape {img.shape}, which is smaller than {height} x {width}: resize it "
            "first, for example with imgaug.ResizeShortestEdge"
        )
