"""Augmentors: what draws random numbers, and makes a transform of them for an image."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tpk.errors import ConfigError, InputError
from tpk_tensorpack.dataflow.imgaug.transform import (
    Array,
    From,
    LazyTransform,
    PhotometricTransform,
    TransformFactory,
    TransformList,
    describe,
    list_lines,
    set_fields,
)
from tpk_tensorpack.utils.argtools import log_once
from tpk_tensorpack.utils.develop import deprecated
from tpk_tensorpack.utils.utils import get_rng

__all__ = ["Augmentor", "AugmentorList", "ImageAugmentor", "PhotometricAugmentor"]

_augmentors: weakref.WeakSet[ImageAugmentor] = weakref.WeakSet()


def _reset_after_fork() -> None:
    # The processes of a fork would otherwise all draw the same numbers.
    for augmentor in list(_augmentors):
        augmentor.reset_state()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


class ImageAugmentor:
    """The base of augmentors.

    A subclass overrides `get_transform`, which draws what is random from `rng` and returns a transform that is
    deterministic. (The older way, still understood: ``_get_augment_params(img)``, ``_augment(img, params)`` and
    ``_augment_coords(coords, params)``.)

    Attributes:
        rng: a `numpy.random.RandomState`, other than in any other process.

    Example:
        ```python
        class RandomInvert(ImageAugmentor):
            def __init__(self, prob=0.5):
                super().__init__()
                self._init(locals())  # sets self.prob

            def get_transform(self, img):
                if self._rand_range() >= self.prob:
                    return Identity().get_transform(img)
                return TransformFactory(name="invert", apply_image=lambda img: 255 - img)
        ```
    """

    rng: np.random.RandomState

    def __init__(self) -> None:
        ImageAugmentor.reset_state(self)
        _augmentors.add(self)

    def _init(self, params: Mapping[str, Any] | None = None) -> None:
        set_fields(self, params)

    def reset_state(self) -> None:
        """Begin with other random numbers.

        What iterates a data flow calls it in the process that augments; a fork does by itself.
        """
        self.rng = get_rng(self)

    def _rand_range(self, low: float = 1.0, high: float | None = None, size: Any = None) -> Any:
        """Draw numbers of float32 between two, or from 0 on if one is given."""
        if high is None:
            low, high = 0, low
        return self.rng.uniform(low, high, [] if size is None else size).astype(np.float32)

    def get_transform(self, img: Array) -> Any:
        """Draw what is random, and return the transform.

        Args:
            img: the image that it is for.

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
            f"{kind.__name__} has _augment, which is tensorpack's older way: define get_transform instead", "warning"
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
        """Return the image, transformed at random."""
        image: Array = self.get_transform(img).apply_image(img)
        return image

    @deprecated("Use get_transform instead", max_num_warnings=1)
    def augment_return_params(self, d: Array) -> tuple[Array, Any]:
        """Return the image, transformed at random, and the transform."""
        transform = self.get_transform(d)
        return transform.apply_image(d), transform

    @deprecated("Use apply_image of a transform instead", max_num_warnings=1)
    def augment_with_params(self, d: Array, param: Any) -> Array:
        """Return an image, transformed by what `augment_return_params` has returned."""
        image: Array = param.apply_image(d)
        return image

    @deprecated("Use apply_coords of a transform instead", max_num_warnings=1)
    def augment_coords(self, coords: Array, param: Any) -> Array:
        """Return coordinates, transformed by what `augment_return_params` has returned."""
        mapped: Array = param.apply_coords(coords)
        return mapped

    def __repr__(self) -> str:
        return describe(self)

    def __str__(self) -> str:
        return repr(self)


Augmentor = ImageAugmentor
"""The older name of `ImageAugmentor`."""


class AugmentorList(ImageAugmentor):
    """Augmentors, one after the other.

    Args:
        augmentors: a list of them.

    Raises:
        ConfigError: it is no list, or one of them is no augmentor.
    """

    def __init__(self, augmentors: Sequence[Any]) -> None:
        check_augmentors("AugmentorList", augmentors)
        self.augmentors = augmentors
        super().__init__()

    def reset_state(self) -> None:
        """Reset this one, and all of them."""
        super().reset_state()
        for augmentor in self.augmentors:
            augmentor.reset_state()

    def get_transform(self, img: Array) -> Any:
        """Return a transform that asks each augmentor once it has what the ones before have made of the image.

        Raises:
            InputError: that is no image.
        """
        check_image(img)
        # The first one has the image, and may as well fail here.
        transforms = [self.augmentors[0].get_transform(img)] if self.augmentors else []
        return TransformList([*transforms, *(LazyTransform(each.get_transform) for each in self.augmentors[1:])])

    def __repr__(self) -> str:
        return f"imgaug.AugmentorList([\n{list_lines(self.augmentors)}])"


class PhotometricAugmentor(ImageAugmentor):
    """The base of augmentors that change pixels, and leave coordinates as they are.

    A subclass overrides ``_augment(img, params)``, and ``_get_augment_params(img)`` where it draws random numbers.
    """

    def __init__(self) -> None:
        super().__init__()

    def get_transform(self, img: Array) -> Any:
        """Draw the parameters, and return the transform."""
        return PhotometricTransform(partial(_augment_with, self._augment, self._get_augment_params(img)), From(self))

    def _get_augment_params(self, _: Array) -> Any:
        return None

    def _augment(self, img: Array, _: Any) -> Array:
        raise NotImplementedError(f"{type(self).__name__} has no _augment(img, params), which it must have")


def _augment_with(augment: Callable[[Array, Any], Array], params: Any, img: Array) -> Array:
    return augment(img, params)


def check_image(img: Any) -> None:
    """Check that something is an image.

    Raises:
        InputError: it is none.
    """
    if not isinstance(img, np.ndarray):
        raise InputError(f"an augmentor got a {type(img).__name__} in place of an image; expected a NumPy array")
    if img.ndim not in (2, 3):
        raise InputError(
            f"an augmentor got an array of shape {img.shape}; expected [height, width] or [height, width, channels]"
        )


def check_augmentors(owner: str, augmentors: Any) -> None:
    """Check that something is a list of augmentors.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(augmentors, (list, tuple)):
        raise ConfigError(f"{owner} got {augmentors!r}; expected a list of augmentors")
    for each in augmentors:
        if not (hasattr(each, "get_transform") and hasattr(each, "reset_state")):
            raise ConfigError(
                f"{owner} got {each!r}, which is no imgaug.ImageAugmentor; imgaug.MapImage makes one of a function"
            )


def clipped(img: Array, dtype: Any, clip: bool) -> Array:
    """Return values as `dtype`, between 0 and 255 if that is asked for, or the only ones that it has.

    They are floating-point numbers that nobody else has, and are changed in place: memory is what takes time here.
    """
    if clip or dtype == np.uint8:
        np.clip(img, 0, 255, out=img)
    return img.astype(dtype, copy=False)
