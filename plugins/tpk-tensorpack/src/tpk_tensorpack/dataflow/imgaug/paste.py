"""Augmentors that put an image onto a larger canvas."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.imgaug.base import ImageAugmentor
from tpk_tensorpack.dataflow.imgaug.transform import Array, From, TransformFactory
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.argtools import shape2d

__all__ = ["BackgroundFiller", "CenterPaste", "ConstantBackgroundFiller", "RandomPaste"]


class BackgroundFiller:
    """Base class of canvas fillers. A subclass overrides ``_fill(background_shape, img)``."""

    def fill(self, background_shape: Sequence[int], img: Array) -> Array:
        """Return a canvas with the type and the number of channels of an image.

        Args:
            background_shape: its height and width.
            img: the image.
        """
        return self._fill((*background_shape[:2], *img.shape[2:]), img)

    def _fill(self, background_shape: tuple[int, ...], img: Array) -> Array:
        raise NotImplementedError(f"{type(self).__name__} must define _fill(background_shape, img)")


class ConstantBackgroundFiller(BackgroundFiller):
    """Fill the canvas with one value.

    Args:
        value: the fill value.
    """

    def __init__(self, value: float) -> None:
        self.value = value

    def _fill(self, background_shape: tuple[int, ...], img: Array) -> Array:
        return np.full(background_shape, self.value, img.dtype)


class CenterPaste(ImageAugmentor):
    """Paste an image onto the center of a canvas.

    Args:
        background_shape: height and width of the canvas, or one number for both.
        background_filler: the filler of the canvas; by default one that fills with 0.

    Raises:
        InputError: an image is larger than the canvas.
    """

    def __init__(
        self, background_shape: int | Sequence[int], background_filler: BackgroundFiller | None = None
    ) -> None:
        filler = ConstantBackgroundFiller(0) if background_filler is None else background_filler
        self._init({"background_shape": tuple(shape2d(background_shape)), "background_filler": filler})

    def get_transform(self, img: Array) -> Any:
        """Choose the position."""
        room = [total - size for total, size in zip(self.background_shape, img.shape[:2], strict=True)]
        if min(room) < 0:
            raise CheckError(f"{self!r} got an image of shape {img.shape}, which is larger than the canvas")
        y0, x0 = self._place(*room)
        return TransformFactory(
            name=From(self, ""),
            apply_image=partial(self._paste, y0, x0),
            apply_coords=lambda coords: coords + np.array([x0, y0], coords.dtype),
        )

    def _place(self, vertical: int, horizontal: int) -> tuple[int, int]:
        return int(vertical * 0.5), int(horizontal * 0.5)

    def _paste(self, y0: int, x0: int, img: Array) -> Array:
        canvas: Array = self.background_filler.fill(self.background_shape, img)
        canvas[y0 : y0 + img.shape[0], x0 : x0 + img.shape[1]] = img
        return canvas


class RandomPaste(CenterPaste):
    """Paste an image onto a canvas at a random position; see `CenterPaste`."""

    def _place(self, vertical: int, horizontal: int) -> tuple[int, int]:
        return int(self._rand_range(vertical)), int(self._rand_range(horizontal))
