"""Augmentors that change brightness, contrast, colors and sharpness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.imgaug.base import PhotometricAugmentor, clipped
from tpk_tensorpack.dataflow.imgaug.transform import BORDER_REPLICATE, Array, with_channels_of
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.develop import log_deprecated
from tpk_tensorpack.utils.opencv import BGR2GRAY, BGR2HSV, HSV2BGR, HSV2RGB, RGB2GRAY, RGB2HSV, cv2

__all__ = [
    "Brightness",
    "BrightnessScale",
    "Clip",
    "Contrast",
    "Gamma",
    "GaussianBlur",
    "Hue",
    "Lighting",
    "MeanVarianceNormalize",
    "MinMaxNormalize",
    "Saturation",
]


class Hue(PhotometricAugmentor):
    """Shift the hue.

    Args:
        range: the range of the hue shift, where a full turn is 180, as in OpenCV's ``uint8`` hues.
        rgb: whether images are RGB; otherwise BGR.
    """

    def __init__(self, range: tuple[float, float] = (0, 180), rgb: bool = True) -> None:
        self._init({"range": range, "rgb": bool(rgb)})

    def _get_augment_params(self, _: Array) -> Any:
        return self._rand_range(*self.range)

    def _augment(self, img: Array, hue: Any) -> Array:
        hsv = cv2.cvtColor(img, RGB2HSV if self.rgb else BGR2HSV)
        # OpenCV's hues range to 180 for uint8, and to 360 otherwise.
        turn = 180 if hsv.dtype == np.uint8 else 360
        hsv[..., 0] = (hsv[..., 0] + hue * (turn / 180)) % turn
        return cv2.cvtColor(hsv, HSV2RGB if self.rgb else HSV2BGR)


class Brightness(PhotometricAugmentor):
    """Add a random number to all values.

    Args:
        delta: the maximum change, in either direction.
        clip: whether to clip the values to [0, 255], even if they are not ``uint8``.

    Raises:
        ConfigError: `delta` is not above 0.
    """

    def __init__(self, delta: float, clip: bool = True) -> None:
        if delta <= 0:
            raise CheckError(f"Brightness(delta={delta}): expected a number above 0")
        self._init(locals())

    def _get_augment_params(self, _: Array) -> Any:
        return self._rand_range(-self.delta, self.delta)

    def _augment(self, img: Array, delta: Any) -> Array:
        values = img.astype(np.float32)
        values += delta
        return clipped(values, img.dtype, self.clip)


class BrightnessScale(PhotometricAugmentor):
    """Multiply all values by a random factor.

    Args:
        range: the range of the factor.
        clip: whether to clip the values to [0, 255], even if they are not ``uint8``.
    """

    def __init__(self, range: tuple[float, float], clip: bool = True) -> None:
        self._init(locals())

    def _get_augment_params(self, _: Array) -> Any:
        return self._rand_range(*self.range)

    def _augment(self, img: Array, factor: Any) -> Array:
        values = img.astype(np.float32)
        values *= factor
        return clipped(values, img.dtype, self.clip)


class Contrast(PhotometricAugmentor):
    """Multiply the differences from the mean by a random factor.

    Args:
        factor_range: the range of the factor.
        rgb: None for the mean of each channel; True or False for the mean of the gray image, from RGB or BGR.
        clip: whether to clip the values to [0, 255], even if they are not ``uint8``.
    """

    def __init__(self, factor_range: Sequence[float], rgb: bool | None = None, clip: bool = True) -> None:
        self._init(locals())

    def _get_augment_params(self, _: Array) -> Any:
        return self._rand_range(*self.factor_range)

    def _augment(self, img: Array, factor: Any) -> Array:
        values = img.astype(np.float32)
        if self.rgb is None:
            mean = np.mean(values, axis=(0, 1), keepdims=True)
        else:
            gray = cv2.cvtColor(values, RGB2GRAY if self.rgb else BGR2GRAY)
            mean = np.mean(gray[:, :, np.newaxis], axis=(0, 1), keepdims=True)
        values -= mean
        values *= factor
        values += mean
        return clipped(values, img.dtype, self.clip)


class MeanVarianceNormalize(PhotometricAugmentor):
    """Normalize an image to mean 0 and standard deviation 1, as ``float32``.

    A standard deviation below ``1 / sqrt(number of values)`` is replaced by that value, as in
    `tf.image.per_image_standardization`.

    Args:
        all_channel: whether to normalize all channels together instead of separately.
    """

    def __init__(self, all_channel: bool = True) -> None:
        self._init(locals())

    def _augment(self, img: Array, _: Any) -> Array:
        values = img.astype(np.float32)
        axes = None if self.all_channel else (0, 1)
        mean, std = np.mean(values, axis=axes, keepdims=True), np.std(values, axis=axes, keepdims=True)
        least = 1 / np.sqrt(np.prod(img.shape if self.all_channel else img.shape[:2]))
        return ((values - mean) / np.maximum(std, least)).astype(np.float32)


class MinMaxNormalize(PhotometricAugmentor):
    """Stretch the values of an image to a given range, as ``float32``.

    Args:
        min: the smallest value of the result.
        max: the largest value of the result.
        all_channel: whether to stretch all channels together instead of separately.
    """

    def __init__(self, min: float = 0, max: float = 255, all_channel: bool = True) -> None:
        self._init(locals())

    def _augment(self, img: Array, _: Any) -> Array:
        values = img.astype(np.float32)
        axes = None if self.all_channel else (0, 1)
        least, largest = np.min(values, axis=axes, keepdims=True), np.max(values, axis=axes, keepdims=True)
        return (self.max - self.min) * (values - least) / (largest - least) + self.min


class GaussianBlur(PhotometricAugmentor):
    """Blur an image.

    Args:
        size_range: the range of ``size``, excluding the second number; the window has sides of ``2 * size + 1``. One
            number ``n`` means ``(0, n)``.
        sigma_range: the range of the standard deviation; 0 lets OpenCV derive it from the window.
        symmetric: whether to blur both directions alike.
        max_size: the former name of the second number of `size_range`.
    """

    def __init__(
        self,
        size_range: int | tuple[int, int] = (0, 3),
        sigma_range: tuple[float, float] = (0, 0),
        symmetric: bool = True,
        max_size: int | None = None,
    ) -> None:
        if max_size is not None:
            log_deprecated("GaussianBlur(max_size=)", "Write size_range=(0, max_size).", max_num_warnings=1)
            size_range = max_size
        if isinstance(size_range, int):
            size_range = (0, size_range)
        self._init({"size_range": size_range, "sigma_range": sigma_range})
        self._init({"symmetric": symmetric, "max_size": max_size})

    def _get_augment_params(self, _: Array) -> Any:
        sizes = self.rng.randint(*self.size_range, size=(2,)) * 2 + 1
        sigmas = self._rand_range(*self.sigma_range, size=(2,))
        if self.symmetric:
            sizes[1], sigmas[1] = sizes[0], sigmas[0]
        return tuple(map(int, sizes)), tuple(map(float, sigmas))

    def _augment(self, img: Array, params: Any) -> Array:
        size, (sigma_x, sigma_y) = params
        blurred = cv2.GaussianBlur(img, size, sigmaX=sigma_x, sigmaY=sigma_y, borderType=BORDER_REPLICATE)
        return with_channels_of(img, blurred)


class Gamma(PhotometricAugmentor):
    """Change the gamma of an image: ``255 * (x / 255) ** (1 / (1 + gamma))``, rounded to whole numbers.

    Args:
        range: the range of gamma.
    """

    def __init__(self, range: tuple[float, float] = (-0.5, 0.5)) -> None:
        self._init(locals())

    def _get_augment_params(self, _: Array) -> Any:
        return self._rand_range(*self.range)

    def _augment(self, img: Array, gamma: Any) -> Array:
        table = ((np.arange(256, dtype=np.float32) / 255) ** (1 / (1 + gamma)) * 255).astype(np.uint8)
        looked_up: Array = table[np.clip(img, 0, 255).astype(np.uint8)]
        return looked_up.astype(img.dtype)


class Clip(PhotometricAugmentor):
    """Clip values.

    Args:
        min: the lower limit.
        max: the upper limit.
    """

    def __init__(self, min: float = 0, max: float = 255) -> None:
        self._init(locals())

    def _augment(self, img: Array, _: Any) -> Array:
        return np.clip(img, self.min, self.max)


class Saturation(PhotometricAugmentor):
    """Blend an image with its grayscale version, as in
    [fb.resnet.torch](https://github.com/facebookarchive/fb.resnet.torch/blob/master/datasets/transforms.lua).

    Args:
        alpha: the maximum change of the saturation, in either direction; less than 1.
        rgb: whether images are RGB; otherwise BGR.
        clip: whether to clip the values to [0, 255], even if they are not ``uint8``.

    Raises:
        ConfigError: `alpha` is not between 0 and 1.
    """

    def __init__(self, alpha: float = 0.4, rgb: bool = True, clip: bool = True) -> None:
        if not 0 <= alpha < 1:
            raise CheckError(f"Saturation(alpha={alpha}): expected a number from 0 to less than 1")
        self._init({"alpha": alpha, "rgb": bool(rgb), "clip": clip})

    def _get_augment_params(self, _: Array) -> Any:
        return 1 + self._rand_range(-self.alpha, self.alpha)

    def _augment(self, img: Array, part: Any) -> Array:
        gray = cv2.cvtColor(img, RGB2GRAY if self.rgb else BGR2GRAY)[:, :, np.newaxis]
        values = img * part
        values += gray * (1 - part)
        return clipped(values, img.dtype, self.clip)


class Lighting(PhotometricAugmentor):
    """Add a color along the principal components of a data set's colors, as in the training of AlexNet.

    See section 4.1 of https://papers.nips.cc/paper/4824-imagenet-classification-with-deep-convolutional-neural-networks.

    Args:
        std: the standard deviation of the added color.
        eigval: the three eigenvalues.
        eigvec: the eigenvectors: a matrix of shape ``[3, 3]`` with one in each column.
        clip: whether to clip the values to [0, 255], even if they are not ``uint8``.

    Raises:
        ConfigError: the shape of `eigval` or `eigvec` is invalid.
        InputError: an image does not have three channels.
    """

    def __init__(self, std: float, eigval: Any, eigvec: Any, clip: bool = True) -> None:
        eigval, eigvec = np.asarray(eigval, np.float32), np.asarray(eigvec, np.float32)
        if eigval.shape != (3,) or eigvec.shape != (3, 3):
            raise CheckError(
                f"Lighting: eigval of shape {eigval.shape}, eigvec {eigvec.shape}: expected [3] and [3, 3]"
            )
        self._init({"std": std, "eigval": eigval, "eigvec": eigvec, "clip": clip})

    def _get_augment_params(self, img: Array) -> Any:
        if img.ndim != 3 or img.shape[2] != 3:
            raise CheckError(f"Lighting got an image of shape {img.shape}; expected [height, width, 3]")
        return (self.rng.randn(3) * self.std).astype(np.float32)

    def _augment(self, img: Array, sizes: Any) -> Array:
        return clipped(img + self.eigvec @ (sizes * self.eigval), img.dtype, self.clip)
