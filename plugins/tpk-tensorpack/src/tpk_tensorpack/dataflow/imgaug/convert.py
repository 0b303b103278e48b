"""Augmentors that change the colors of all images alike, or their type."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpk.errors import ConfigError
from tpk_tensorpack.dataflow.imgaug.base import PhotometricAugmentor
from tpk_tensorpack.dataflow.imgaug.transform import Array, with_channels_of
from tpk_tensorpack.utils.opencv import BGR2GRAY, RGB2GRAY, cv2

__all__ = ["ColorSpace", "Grayscale", "ToFloat32", "ToUint8"]


class ColorSpace(PhotometricAugmentor):
    """Converts into another color space.

    Args:
        mode: OpenCV's code, such as ``cv2.COLOR_BGR2HSV``.
        keepdims: whether an image of one channel keeps its axis.
    """

    def __init__(self, mode: int, keepdims: bool = True) -> None:
        super().__init__()
        self._init(locals())

    def _augment(self, img: Array, _: Any) -> Array:
        converted: Array = cv2.cvtColor(img, self.mode)
        return with_channels_of(img, converted) if self.keepdims else converted


class Grayscale(ColorSpace):
    """Converts to gray.

    Args:
        keepdims: whether the result has shape ``[height, width, 1]``; otherwise ``[height, width]``.
        rgb: whether images are RGB; otherwise BGR.
        keepshape: whether the result has three equal channels.

    Raises:
        ConfigError: `keepshape` without `keepdims`.
    """

    def __init__(self, keepdims: bool = True, rgb: bool = False, keepshape: bool = False) -> None:
        if keepshape and not keepdims:
            raise ConfigError("Grayscale(keepshape=True) needs keepdims=True: its images have three axes")
        super().__init__(RGB2GRAY if rgb else BGR2GRAY, keepdims)
        self.keepshape = keepshape
        self.rgb = rgb

    def _augment(self, img: Array, _: Any) -> Array:
        gray = super()._augment(img, None)
        return np.concatenate([gray] * 3, axis=2) if self.keepshape else gray


class ToUint8(PhotometricAugmentor):
    """Clips values to what ``uint8`` has, and converts to it; that is a quarter of the bytes to send."""

    def __init__(self) -> None:
        super().__init__()

    def _augment(self, img: Array, _: Any) -> Array:
        return np.clip(img, 0, 255).astype(np.uint8)


class ToFloat32(PhotometricAugmentor):
    """Converts to ``float32``: augmentors that follow do not round."""

    def __init__(self) -> None:
        super().__init__()

    def _augment(self, img: Array, _: Any) -> Array:
        return img.astype(np.float32)
