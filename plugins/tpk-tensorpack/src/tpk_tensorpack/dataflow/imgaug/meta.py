"""Augmentors that wrap other augmentors or functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tpk.errors import ConfigError
from tpk_tensorpack.dataflow.imgaug.base import AugmentorGroup, ImageAugmentor
from tpk_tensorpack.dataflow.imgaug.transform import Array, NoOpTransform, TransformFactory, TransformList

__all__ = ["Identity", "MapImage", "RandomApplyAug", "RandomChooseAug", "RandomOrderAug"]


class Identity(ImageAugmentor):
    """Leave images unchanged."""

    def get_transform(self, _: Array) -> Any:
        """Return the identity transform."""
        return NoOpTransform()


class RandomApplyAug(AugmentorGroup):
    """Apply an augmentor with a given probability.

    Args:
        aug: the augmentor.
        prob: the probability of applying it.

    Raises:
        ConfigError: it is not an augmentor.
    """

    def __init__(self, aug: ImageAugmentor, prob: float) -> None:
        super().__init__([aug])
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Decide whether to apply it."""
        return self.aug.get_transform(img) if self.rng.rand() < self.prob else NoOpTransform()


class RandomChooseAug(AugmentorGroup):
    """Apply one of several augmentors.

    Args:
        aug_lists: augmentors, or pairs of an augmentor and its probability.

    Raises:
        ConfigError: the list is empty, an item is not an augmentor, or the probabilities do not add up to 1.
    """

    def __init__(self, aug_lists: Sequence[Any]) -> None:
        if not aug_lists:
            raise ConfigError("RandomChooseAug got an empty list; expected augmentors")
        if isinstance(aug_lists[0], list | tuple):
            augmentors, prob = [pair[0] for pair in aug_lists], [pair[1] for pair in aug_lists]
        else:
            augmentors, prob = list(aug_lists), [1 / len(aug_lists)] * len(aug_lists)
        super().__init__(augmentors)
        if abs(sum(prob) - 1) > 1e-6:
            raise ConfigError(f"RandomChooseAug got probabilities {prob}; expected a sum of 1")
        self._init({"aug_lists": augmentors, "prob": prob})

    def get_transform(self, img: Array) -> Any:
        """Choose an augmentor."""
        return self.aug_lists[self.rng.choice(len(self.aug_lists), p=self.prob)].get_transform(img)


class RandomOrderAug(AugmentorGroup):
    """Apply several augmentors in a random order. They must preserve the shape of the image.

    Args:
        aug_lists: the augmentors.

    Raises:
        ConfigError: an item is not an augmentor.
    """

    def __init__(self, aug_lists: Sequence[ImageAugmentor]) -> None:
        super().__init__(aug_lists)
        self._init(locals())

    def get_transform(self, img: Array) -> Any:
        """Choose the order."""
        order = self.rng.permutation(len(self.aug_lists))
        return TransformList([self.aug_lists[index].get_transform(img) for index in order])


class MapImage(ImageAugmentor):
    """Apply a function.

    Args:
        func: takes an image and returns an image.
        coord_func: takes coordinates of shape ``[n, 2]`` (x, y) and returns coordinates.
    """

    def __init__(self, func: Callable[[Array], Array], coord_func: Callable[[Array], Array] | None = None) -> None:
        self.func = func
        self.coord_func = coord_func

    def get_transform(self, _: Array) -> Any:
        """Return a transform that calls the functions."""
        functions = {"apply_image": self.func}
        if self.coord_func is not None:
            functions["apply_coords"] = self.coord_func
        return TransformFactory(name="MapImage", **functions)
