"""Augmentors of third-party libraries."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import numpy as np

from tpk.errors import ConfigError, InputError
from tpk_tensorpack.dataflow.imgaug.base import ImageAugmentor
from tpk_tensorpack.dataflow.imgaug.transform import Array, From, NoOpTransform, TransformFactory

__all__ = ["Albumentations", "IAAugmentor"]


class IAAugmentor(ImageAugmentor):
    """Apply an augmentor of the [imgaug](https://github.com/aleju/imgaug) library to ``uint8`` images.

    Args:
        augmentor: one of ``imgaug.augmenters``.

    Raises:
        ConfigError: it is something else.
        InputError: an image is not ``uint8``.
    """

    def __init__(self, augmentor: Any) -> None:
        if not hasattr(augmentor, "to_deterministic"):
            raise ConfigError(
                f"IAAugmentor got {augmentor!r}; expected an augmentor of the library that `pip install imgaug` "
                "installs"
            )
        self._aug = augmentor

    def get_transform(self, img: Array) -> Any:
        """Draw the augmentor's random numbers."""
        if img.dtype != np.uint8:
            raise InputError(f"IAAugmentor got an image of {img.dtype}; the library imgaug takes uint8")
        drawn = self._aug.to_deterministic()

        def apply_coords(coords: Array) -> Array:
            imgaug: Any = importlib.import_module("imgaug")
            points = [imgaug.Keypoint(x=x, y=y) for x, y in coords]
            augmented = drawn.augment_keypoints([imgaug.KeypointsOnImage(points, shape=img.shape)])[0]
            return np.asarray([[point.x, point.y] for point in augmented.keypoints])

        return TransformFactory(name=From(self, ""), apply_image=drawn.augment_image, apply_coords=apply_coords)


class Albumentations(ImageAugmentor):
    """Apply an augmentor of [Albumentations](https://albumentations.ai); coordinates are not supported.

    Args:
        augmentor: an ``albumentations.BasicTransform``, such as ``albumentations.RandomRotate90(p=1)``.

    Raises:
        ConfigError: it is something else, or a composition of several.
    """

    def __init__(self, augmentor: Any) -> None:
        if not (hasattr(augmentor, "get_params") and hasattr(augmentor, "apply")):
            raise ConfigError(
                f"Albumentations got {augmentor!r}; expected a single augmentor of the library that `pip install "
                "albumentations` installs: an imgaug.AugmentorList holds several"
            )
        self._aug = augmentor

    def get_transform(self, img: Array) -> Any:
        """Draw the augmentor's random numbers."""
        if self.rng.rand() >= getattr(self._aug, "p", 1):
            return NoOpTransform()
        if hasattr(self._aug, "set_random_seed"):
            # Its own random numbers would be the same in every worker process.
            self._aug.set_random_seed(int(self.rng.randint(2**31 - 1)))
        params = self._aug.get_params()
        # In newer versions, the parameters depend on the image or on its shape.
        if hasattr(self._aug, "update_transform_params"):
            params = self._aug.update_transform_params(params, {"image": img})
        if hasattr(self._aug, "get_params_dependent_on_data"):
            params = {**params, **self._aug.get_params_dependent_on_data(params, {"image": img})}
        return TransformFactory(name=From(self, ""), apply_image=partial(self._aug.apply, **params))
