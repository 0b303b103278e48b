"""Augmentors that add noise."""

from __future__ import annotations

from typing import Any

from tpk_tensorpack.dataflow.imgaug.base import PhotometricAugmentor, clipped
from tpk_tensorpack.dataflow.imgaug.transform import Array
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.opencv import cv2

__all__ = ["GaussianNoise", "JpegNoise", "SaltPepperNoise"]


class JpegNoise(PhotometricAugmentor):
    """Encode an image as JPEG and decode it, to add compression artifacts.

    Args:
        quality_range: the range of the JPEG quality, excluding the second number; 100 is the best.
    """

    def __init__(self, quality_range: tuple[int, int] = (40, 100)) -> None:
        self._init(locals())

    def _get_augment_params(self, _: Array) -> Any:
        return int(self.rng.randint(*self.quality_range))

    def _augment(self, img: Array, quality: Any) -> Array:
        encoded = cv2.imencode(".jpg", img, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        kind = cv2.IMREAD_COLOR if img.ndim == 3 and img.shape[2] == 3 else cv2.IMREAD_GRAYSCALE
        decoded: Array = cv2.imdecode(encoded, kind).astype(img.dtype)
        return decoded.reshape(img.shape)


class GaussianNoise(PhotometricAugmentor):
    """Add Gaussian noise to each value.

    Args:
        sigma: the standard deviation of the noise.
        clip: whether to clip the values to [0, 255], even if they are not ``uint8``.
    """

    def __init__(self, sigma: float = 1, clip: bool = True) -> None:
        self._init(locals())

    def _get_augment_params(self, img: Array) -> Any:
        return self.rng.randn(*img.shape)

    def _augment(self, img: Array, noise: Any) -> Array:
        return clipped(img + noise * self.sigma, img.dtype, self.clip)


class SaltPepperNoise(PhotometricAugmentor):
    """Set random values to 255 or 0, in place, independently in each channel.

    Args:
        white_prob: the probability of 255.
        black_prob: the probability of 0.

    Raises:
        ConfigError: the sum of the probabilities exceeds 1.
    """

    def __init__(self, white_prob: float = 0.05, black_prob: float = 0.05) -> None:
        if white_prob + black_prob > 1:
            raise CheckError(
                f"SaltPepperNoise({white_prob}, {black_prob}): expected probabilities with a sum of at most 1"
            )
        self._init(locals())

    def _get_augment_params(self, img: Array) -> Any:
        return self.rng.uniform(low=0, high=1, size=img.shape)

    def _augment(self, img: Array, drawn: Any) -> Array:
        img[drawn > 1 - self.white_prob] = 255
        img[drawn < self.black_prob] = 0
        return img
