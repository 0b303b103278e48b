"""A slow, smooth deformation; undocumented and not exported in tensorpack, so do not rely on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tpk.errors import InputError
from tpk_tensorpack.dataflow.imgaug.base import ImageAugmentor
from tpk_tensorpack.dataflow.imgaug.transform import Array, From, TransformFactory

__all__: list[str] = []


class GaussianMap:
    """Gaussian weights that fall off with the distance from a point.

    Args:
        image_shape: height and width.
        sigma: the weight is 1/e at a squared distance of `sigma`, measured in image sides.
    """

    def __init__(self, image_shape: Sequence[int], sigma: float = 0.5) -> None:
        self.shape = image_shape
        self.sigma = sigma

    def get_gaussian_weight(self, anchor: Sequence[float]) -> Array:
        """Return the weight of each pixel.

        Args:
            anchor: the point, y and x, from 0 to 1.
        """
        height, width = self.shape[:2]
        y, x = np.arange(height) / height - anchor[0], np.arange(width) / width - anchor[1]
        return np.exp(-(y[:, np.newaxis] ** 2 + x**2) / self.sigma).astype(np.float32)


def np_sample(img: Array, coords: Array) -> Array:
    """Sample an image at fractional coordinates, with bilinear interpolation.

    Args:
        img: of shape ``[height, width, channels]``.
        coords: of shape ``[..., 2]``, y and x; coordinates outside the image are clamped to its border.
    """
    last = np.array(img.shape[:2]) - 1
    coords = np.clip(coords, 0, last)
    low = np.floor(coords).astype(np.int64)
    high = np.minimum(low + 1, last)
    part = (coords - low)[..., np.newaxis]
    y, x = part[..., 0, :], part[..., 1, :]
    upper = img[low[..., 0], low[..., 1]] * (1 - x) + img[low[..., 0], high[..., 1]] * x
    lower = img[high[..., 0], low[..., 1]] * (1 - x) + img[high[..., 0], high[..., 1]] * x
    return upper * (1 - y) + lower * y


class GaussianDeform(ImageAugmentor):
    """Move some points of an image at random, and their surroundings with them.

    Args:
        anchors: the points, y and x, from 0 to 1.
        shape: height and width of the images.
        sigma: the width of the surroundings; see `GaussianMap`.
        randrange: the maximum distance in pixels that a point moves; None for an eighth of the height.

    Raises:
        InputError: an image has a different size.
    """

    def __init__(
        self,
        anchors: Sequence[Sequence[float]],
        shape: Sequence[int],
        sigma: float = 0.5,
        randrange: float | None = None,
    ) -> None:
        self.anchors = anchors
        self.shape = shape
        self.sigma = sigma
        self.randrange = shape[0] / 8 if randrange is None else randrange
        self.grid = np.stack(np.mgrid[: shape[0], : shape[1]], axis=2).astype(np.float32)
        weights = GaussianMap(shape, sigma)
        self.gws = np.stack([weights.get_gaussian_weight(anchor) for anchor in anchors], axis=2)

    def get_transform(self, img: Array) -> Any:
        """Draw the distances."""
        if img.ndim != 3 or img.shape[:2] != tuple(self.shape[:2]):
            raise InputError(
                f"GaussianDeform(shape={self.shape!r}) got an image of shape {img.shape}; expected "
                "[height, width, channels] with that height and width: resize it first"
            )
        moves = (self.rng.rand(len(self.anchors), 2) - 0.5) * 2 * self.randrange
        return TransformFactory(
            name=From(self, ""), apply_image=partial(np_sample, coords=self.grid + self.gws @ moves)
        )
