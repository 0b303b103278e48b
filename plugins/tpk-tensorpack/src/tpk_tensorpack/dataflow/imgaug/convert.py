"""Augmentors that convert colors or data types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.imgaug.base import PhotometricAugmentor
from tpk_tensorpack.dataflow.imgaug.transform import Array, with_channels_of
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.opencv import BGR2GRAY, RGB2GRAY, cv2

__all__ = ["ColorSpace", "Grayscale", "ToFloat32", "ToUint8"]


class ColorSpace(PhotometricAugmentor):
    """Convert images to another color space.

    Args:
        mode: an OpenCV code, such as ``cv2.COLOR_BGR2HSV``.
        keepdims: whether an image with one channel keeps its channel axis.
    """

    def __init__(self, mode: int, keepdims: bool = True) -> None:
        self._init(locals())

    def _augment(self, img: Array, _: Any) -> Array:
        converted: Array = cv2.cvtColor(img, self.mode)
        return with_channels_of(img, converted) if self.keepdims else converted


class Grayscale(ColorSpace):
    """Convert images to grayscale.

    Args:
        keepdims: whether the result has shape ``[height, width, 1]``; otherwise ``[height, width]``.
        rgb: whether images are RGB; otherwise BGR.
        keepshape: whether the result has three equal channels.

    Raises:
        ConfigError: `keepshape` without `keepdims`.
    """

    def __init__(self, keepdims: bool = True, rgb: bool = False, keepshape: bool = False) -> None:
        if keepshape and not keepdims:
            raise CheckError("Grayscale(keepshape=True) needs keepdims=True: its images have three axes")
        super().__init__(RGB2GRAY if rgb else BGR2GRAY, keepdims)
        self.keepshape = keepshape
        self.rgb = rgb

    def _augment(self, img: Array, _: Any) -> Array:
        gray = super()._augment(img, None)
        return np.concatenate([gray] * 3, axis=2) if self.keepshape else gray


class ToUint8(PhotometricAugmentor):
    """Clip values to the range of ``uint8`` and convert to it; this takes a quarter of the memory of ``float32``."""

    def _augment(self, img: Array, _: Any) -> Array:
        return np.clip(img, 0, 255).astype(np.uint8)


class ToFloat32(PhotometricAugmentor):
    """Convert images to ``float32``, so that later augmentors do not round."""

    def _augment(self, img: Array, _: Any) -> Array:
        return img.astype(np.float32)
