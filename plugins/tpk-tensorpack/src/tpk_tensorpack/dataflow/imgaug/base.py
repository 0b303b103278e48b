"""Augmentors: they draw random numbers and create a transform for an image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.imgaug.transform import (
    Array,
    Described,
    From,
    LazyTransform,
    PhotometricTransform,
    TransformFactory,
    TransformList,
    list_lines,
)
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.argtools import log_once
from tpk_tensorpack.utils.develop import deprecated
from tpk_tensorpack.utils.utils import get_rng

__all__ = ["Augmentor", "AugmentorList", "ImageAugmentor", "PhotometricAugmentor"]


class ImageAugmentor(Described):
    """Base class of augmentors.

    A subclass overrides `get_transform`, which draws random numbers from `rng` and returns a deterministic transform.
    (The older interface is still supported: ``_get_augment_params(img)``, ``_augment(img, params)`` and
    ``_augment_coords(coords, params)``.)

    Example:
        ```python
        class RandomInvert(ImageAugmentor):
            def __init__(self, prob=0.5):
                self._init(locals())  # sets self.prob

            def get_transform(self, img):
                if self._rand_range() >= self.prob:
                    return Identity().get_transform(img)
                return TransformFactory(name="invert", apply_image=lambda img: 255 - img)
        ```
    """

    _rng: np.random.RandomState
    _process: int | None = None

    @property
    def rng(self) -> np.random.RandomState:
        """The random numbers, which differ in each process: `reset_state` is called in a process that has none yet."""
        if self._process != os.getpid():
            self.reset_state()
        return self._rng

    @rng.setter
    def rng(self, rng: np.random.RandomState) -> None:
        self._rng, self._process = rng, os.getpid()

    def reset_state(self) -> None:
        """Reseed the random numbers; data flows call it in the process that augments."""
        self.rng = get_rng(self)

    def _rand_range(self, low: float = 1.0, high: float | None = None, size: Any = None) -> Any:
        """Draw float32 numbers from the range ``[low, high)``, or ``[0, low)`` if only one number is given."""
        if high is None:
            low, high = 0, low
        return self.rng.uniform(low, high, [] if size is None else size).astype(np.float32)

    def get_transform(self, img: Array) -> Any:
        """Draw random numbers and return the transform.

        Args:
            img: the image to transform.

        Returns:
            A `Transform`.
        """
        kind = type(self)
        if not hasattr(kind, "_augment"):
            raise NotImplementedError(
                f"{kind.__name__} has no get_transform, which an augmentor must have: define one that returns an "
                "imgaug.Transform"
            )
        log_once(
            f"{kind.__name__} defines _augment, tensorpack's older interface: define get_transform instead", "warning"
        )
        params = self._get_augment_params(img)
        return TransformFactory(
            name=From(self, "LegacyConversion -- "),
            apply_image=lambda img: self._augment(img, params),  # type: ignore[attr-defined]
            apply_coords=lambda coords: self._augment_coords(coords, params),
        )

    def _get_augment_params(self, img: Array) -> Any:
        return None

    def _augment_coords(self, coords: Array, params: Any) -> Array:
        return coords

    def augment(self, img: Array) -> Array:
        """Return the image, randomly transformed."""
        return self.get_transform(img).apply_image(img)

    @deprecated("Use get_transform instead", max_num_warnings=1)
    def augment_return_params(self, d: Array) -> tuple[Array, Any]:
        """Return the randomly transformed image, and the transform."""
        transform = self.get_transform(d)
        return transform.apply_image(d), transform

    @deprecated("Use apply_image of a transform instead", max_num_warnings=1)
    def augment_with_params(self, d: Array, param: Any) -> Array:
        """Return the image, transformed with the result of `augment_return_params`."""
        return param.apply_image(d)

    @deprecated("Use apply_coords of a transform instead", max_num_warnings=1)
    def augment_coords(self, coords: Array, param: Any) -> Array:
        """Return the coordinates, transformed with the result of `augment_return_params`."""
        return param.apply_coords(coords)


Augmentor = ImageAugmentor
"""The former name of `ImageAugmentor`."""


class AugmentorGroup(ImageAugmentor):
    """Base class of augmentors that use others; resets them too."""

    def __init__(self, augmentors: Sequence[Any]) -> None:
        check_augmentors(type(self).__name__, augmentors)
        self._group = augmentors

    def reset_state(self) -> None:
        """Reset this augmentor and those that it uses."""
        super().reset_state()
        for augmentor in self._group:
            augmentor.reset_state()


class AugmentorList(AugmentorGroup):
    """Apply several augmentors in order.

    Args:
        augmentors: a list of augmentors.

    Raises:
        ConfigError: it is not a list, or an item is not an augmentor.
    """

    def __init__(self, augmentors: Sequence[Any]) -> None:
        super().__init__(augmentors)
        self.augmentors = augmentors

    def get_transform(self, img: Array) -> Any:
        """Return a transform that asks each augmentor in turn, with the image as transformed so far.

        Raises:
            InputError: `img` is not an image.
        """
        check_image(img)
        # The first augmentor gets the image itself, and its errors can be raised here.
        transforms = [self.augmentors[0].get_transform(img)] if self.augmentors else []
        return TransformList([*transforms, *(LazyTransform(each.get_transform) for each in self.augmentors[1:])])

    def __repr__(self) -> str:
        return f"imgaug.AugmentorList([\n{list_lines(self.augmentors)}])"


class PhotometricAugmentor(ImageAugmentor):
    """Base class of augmentors that change pixels but not coordinates.

    A subclass overrides ``_augment(img, params)``, and ``_get_augment_params(img)`` if it draws random numbers.
    """

    def get_transform(self, img: Array) -> Any:
        """Draw the parameters, and return the transform."""
        params = self._get_augment_params(img)
        return PhotometricTransform(lambda img: self._augment(img, params), From(self))

    def _get_augment_params(self, _: Array) -> Any:
        return None

    def _augment(self, img: Array, _: Any) -> Array:
        raise NotImplementedError(f"{type(self).__name__} has no _augment(img, params), which it must have")


def check_image(img: Any) -> None:
    """Check that `img` is an image.

    Raises:
        InputError: it is not.
    """
    if not isinstance(img, np.ndarray) or img.ndim not in (2, 3):
        what = f"an array of shape {img.shape}" if isinstance(img, np.ndarray) else type(img).__name__
        raise CheckError(
            f"an augmentor got {what} instead of an image; expected an array of shape [height, width] or "
            "[height, width, channels]. Is the index of the image right?"
        )


def check_augmentors(owner: str, augmentors: Any) -> None:
    """Check that `augmentors` is a list of augmentors.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(augmentors, (list, tuple)):
        raise CheckError(f"{owner} got {augmentors!r}; expected a list of augmentors")
    for each in augmentors:
        if not (hasattr(each, "get_transform") and hasattr(each, "reset_state")):
            raise CheckError(
                f"{owner} got {each!r}, which is not an imgaug.ImageAugmentor; imgaug.MapImage wraps a function"
            )


def clipped(img: Array, dtype: Any, clip: bool) -> Array:
    """Return values as `dtype`, clipped to [0, 255] if requested or if `dtype` requires it.

    The values must be floating-point numbers that nothing else uses: they are changed in place, because copying is
    slow.
    """
    if clip or dtype == np.uint8:
        np.clip(img, 0, 255, out=img)
    return img.astype(dtype, copy=False)
