"""Augmentors of augmentors, and of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tpk.errors import ConfigError
from tpk_tensorpack.dataflow.imgaug.base import ImageAugmentor, check_augmentors
from tpk_tensorpack.dataflow.imgaug.transform import Array, NoOpTransform, TransformFactory, TransformList

__all__ = ["Identity", "MapImage", "RandomApplyAug", "RandomChooseAug", "RandomOrderAug"]


class Identity(ImageAugmentor):
    """Leaves an image as it is."""

    def get_transform(self, _: Array) -> Any:
        """Return what leaves all as it is."""
        return NoOpTransform()


class RandomApplyAug(ImageAugmentor):
    """Applies an augmentor, or not.

    Args:
        aug: the augmentor.
        prob: how likely it is applied.

    Raises:
        ConfigError: it is no augmentor.
    """

    def __init__(self, aug: ImageAugmentor, prob: float) -> None:
        check_augmentors("RandomApplyAug", [aug])
        self._init(locals())
        super().__init__()

    def reset_state(self) -> None:
        """Reset this one, and the augmentor."""
        super().reset_state()
        self.aug.reset_state()

    def get_transform(self, img: Array) -> Any:
        """Decide whether to apply it."""
        return self.aug.get_transform(img) if self.rng.rand() < self.prob else NoOpTransform()


class RandomChooseAug(ImageAugmentor):
    """Applies one of several augmentors.

    Args:
        aug_lists: the augmentors; or pairs of an augmentor and how likely it is.

    Raises:
        ConfigError: there is none, or one is no augmentor, or the probabilities are not 1 together.
    """

    def __init__(self, aug_lists: Sequence[Any]) -> None:
        if not aug_lists:
            raise ConfigError("RandomChooseAug got an empty list; expected augmentors")
        if isinstance(aug_lists[0], list | tuple):
            augmentors, prob = [pair[0] for pair in aug_lists], [pair[1] for pair in aug_lists]
        else:
            augmentors, prob = list(aug_lists), [1 / len(aug_lists)] * len(aug_lists)
        check_augmentors("RandomChooseAug", augmentors)
        if abs(sum(prob) - 1) > 1e-6:
            raise ConfigError(f"RandomChooseAug got probabilities {prob}; expected 1 together")
        self._init({"aug_lists": augmentors, "prob": prob})
        super().__init__()

    def reset_state(self) -> None:
        """Reset this one, and all of them."""
        super().reset_state()
        for augmentor in self.aug_lists:
            augmentor.reset_state()

    def get_transform(self, img: Array) -> Any:
        """Choose one."""
        return self.aug_lists[self.rng.choice(len(self.aug_lists), p=self.prob)].get_transform(img)


class RandomOrderAug(ImageAugmentor):
    """Applies several augmentors in a random order. They leave the shape of an image as it is.

    Args:
        aug_lists: the augmentors.

    Raises:
        ConfigError: one is no augmentor.
    """

    def __init__(self, aug_lists: Sequence[ImageAugmentor]) -> None:
        check_augmentors("RandomOrderAug", aug_lists)
        self._init(locals())
        super().__init__()

    def reset_state(self) -> None:
        """Reset this one, and all of them."""
        super().reset_state()
        for augmentor in self.aug_lists:
            augmentor.reset_state()

    def get_transform(self, img: Array) -> Any:
        """Choose the order."""
        order = self.rng.permutation(len(self.aug_lists))
        return TransformList([self.aug_lists[index].get_transform(img) for index in order])


class MapImage(ImageAugmentor):
    """Makes an augmentor of a function.

    Args:
        func: takes an image, returns one.
        coord_func: takes coordinates of shape ``[n, 2]`` (x, y), returns them.
    """

    def __init__(self, func: Callable[[Array], Array], coord_func: Callable[[Array], Array] | None = None) -> None:
        super().__init__()
        self.func = func
        self.coord_func = coord_func

    def get_transform(self, _: Array) -> Any:
        """Return the transform of the functions."""
        functions = {"apply_image": self.func}
        if self.coord_func is not None:
            functions["apply_coords"] = self.coord_func
        return TransformFactory(name="MapImage", **functions)
