"""Deterministic transforms of an image and related data, created once the random numbers have been drawn."""

from __future__ import annotations

import inspect
import pprint
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tpk.errors import ConfigError
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.opencv import cv2

__all__ = ["CropTransform", "FlipTransform", "ResizeTransform", "Transform", "TransformFactory", "TransformList"]

Array = np.ndarray[Any, Any]

INTER_LINEAR = 1
"""`cv2.INTER_LINEAR`, for defaults without importing OpenCV."""
BORDER_CONSTANT = 0
"""`cv2.BORDER_CONSTANT`."""
BORDER_REPLICATE = 1
"""`cv2.BORDER_REPLICATE`."""


class Described:
    """Keeps constructor arguments as attributes, and shows them in `repr` unless they have their default values."""

    def _init(self, params: Mapping[str, Any] | None = None) -> None:
        """Set constructor arguments, given as ``locals()``, as attributes."""
        for name, value in (params or {}).items():
            if name != "self" and not name.startswith("_"):
                setattr(self, name, value)

    def __repr__(self) -> str:
        shown = []
        for parameter in inspect.signature(type(self)).parameters.values():
            is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if is_variadic or not hasattr(self, parameter.name):
                return object.__repr__(self)
            value = getattr(self, parameter.name)
            if value is not parameter.default:
                shown.append(f"{parameter.name}={pprint.pformat(value)}")
        return f"imgaug.{type(self).__name__}({', '.join(shown)})"


def with_channels_of(image: Array, result: Array) -> Array:
    """Restore the single channel axis that OpenCV drops from its result."""
    return result[:, :, np.newaxis] if result.ndim < image.ndim else result


class From:
    """Formats ``from <augmentor>`` lazily: formatting it for each image can take longer than the augmentation."""

    def __init__(self, augmentor: Any, prefix: str = "from ") -> None:
        self.augmentor = augmentor
        self.prefix = prefix

    def __str__(self) -> str:
        return f"{self.prefix}{self.augmentor}"


class BaseTransform(Described):
    """Base class of all transforms; derive from `Transform` instead."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("apply_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return lambda x: self._apply(x, name)

    def _apply(self, x: Any, meth: str) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not implement {meth}: a subclass can define it")


class Transform(BaseTransform):
    """A deterministic transform of images.

    A subclass defines ``apply_image(img)``, and ``apply_coords(coords)`` for coordinates of shape ``[n, 2]`` (x, y) if
    that makes sense. It can define other methods named ``apply_…``. Calling an undefined one raises
    `NotImplementedError`. These methods may change their arguments in place.

    Example:
        ```python
        class Invert(Transform):
            def apply_image(self, img):
                return 255 - img

            def apply_coords(self, coords):
                return coords
        ```
    """


class ResizeTransform(Transform):
    """Resize an image.

    Args:
        h: the height of the image.
        w: the width of the image.
        new_h: the new height.
        new_w: the new width.
        interp: an OpenCV interpolation flag.
    """

    def __init__(self, h: int, w: int, new_h: int, new_w: int, interp: int) -> None:
        self._init(locals())

    def apply_image(self, img: Array) -> Array:
        """Resize an image.

        Raises:
            InputError: the size of the image differs from the size that the transform was created for.
        """
        if img.shape[:2] != (self.h, self.w):
            raise CheckError(
                f"{self!r} got an image of shape {img.shape}; expected height {self.h} and width {self.w}: create a "
                "transform for each size"
            )
        return with_channels_of(img, cv2.resize(img, (self.new_w, self.new_h), interpolation=self.interp))

    def apply_coords(self, coords: Array) -> Array:
        """Scale coordinates."""
        return coords * np.array([self.new_w / self.w, self.new_h / self.h], _floating(coords))


class CropTransform(Transform):
    """Crop a rectangle; the result is a view.

    Args:
        y0: the first row.
        x0: the first column.
        h: the height.
        w: the width.
    """

    def __init__(self, y0: int, x0: int, h: int, w: int) -> None:
        self._init(locals())

    def apply_image(self, img: Array) -> Array:
        """Crop the rectangle."""
        return img[self.y0 : self.y0 + self.h, self.x0 : self.x0 + self.w]

    def apply_coords(self, coords: Array) -> Array:
        """Make coordinates relative to the corner of the rectangle, including those outside of it."""
        return coords - np.array([self.x0, self.y0], coords.dtype)


class WarpAffineTransform(Transform):
    """An affine map, applied with ``cv2.warpAffine``.

    Here, integer coordinates are pixel centers, as in OpenCV; in all other transforms they are pixel corners. Like
    tensorpack, this maps corner coordinates without a conversion, half a pixel off in x and y.

    Args:
        mat: a matrix of shape ``[2, 3]`` from coordinates of the image to coordinates of the result.
        dsize: width and height of the result.
        interp: an OpenCV interpolation flag.
        borderMode: an OpenCV border mode.
        borderValue: the value for a constant border.
    """

    def __init__(
        self,
        mat: Array,
        dsize: tuple[int, int],
        interp: int = INTER_LINEAR,
        borderMode: int = BORDER_CONSTANT,
        borderValue: Any = 0,
    ) -> None:
        self._init(locals())

    def apply_image(self, img: Array) -> Array:
        """Transform an image."""
        warped = cv2.warpAffine(
            img, self.mat, self.dsize, flags=self.interp, borderMode=self.borderMode, borderValue=self.borderValue
        )
        return with_channels_of(img, warped)

    def apply_coords(self, coords: Array) -> Array:
        """Transform coordinates."""
        return coords @ self.mat[:, :2].T + self.mat[:, 2]


class FlipTransform(Transform):
    """Flip an image; the result is a view.

    Args:
        h: the height of the image.
        w: the width of the image.
        horiz: whether to flip left to right, instead of top to bottom.
    """

    def __init__(self, h: int, w: int, horiz: bool = True) -> None:
        self._init(locals())

    def apply_image(self, img: Array) -> Array:
        """Flip an image."""
        return img[:, ::-1] if self.horiz else img[::-1]

    def apply_coords(self, coords: Array) -> Array:
        """Flip coordinates."""
        flipped = np.array(coords)
        axis, length = (0, self.w) if self.horiz else (1, self.h)
        flipped[:, axis] = length - flipped[:, axis]
        return flipped


class TransposeTransform(Transform):
    """Swap rows and columns of an image."""

    def apply_image(self, img: Array) -> Array:
        """Swap rows and columns."""
        return with_channels_of(img, cv2.transpose(img))

    def apply_coords(self, coords: Array) -> Array:
        """Swap x and y."""
        return coords[:, ::-1]


class NoOpTransform(Transform):
    """Leaves everything unchanged: each ``apply_…`` returns its argument."""

    def _apply(self, x: Any, _: str) -> Any:
        return x


class TransformFactory(Transform):
    """A transform made of functions.

    Args:
        name: the name in `repr`.
        kwargs: a function for each ``apply_…`` method.

    Raises:
        ConfigError: a keyword does not begin with ``apply_``.

    Example:
        ```python
        invert = TransformFactory(name="invert", apply_image=lambda image: 255 - image)
        ```
    """

    def __init__(self, name: Any = None, **kwargs: Callable[[Any], Any]) -> None:
        for key, function in kwargs.items():
            if not key.startswith("apply_"):
                raise ConfigError(
                    f"TransformFactory got {key!r}; expected functions as apply_image=, apply_coords=, ..."
                )
            setattr(self, key, function)
        self._name = name

    def __repr__(self) -> str:
        return f"imgaug.{type(self).__name__}({'' if self._name is None else self._name})"


class PhotometricTransform(TransformFactory):
    """Change the pixels of an image with a function, and leave coordinates unchanged.

    Args:
        func: takes an image and returns an image.
        name: the name in `repr`.
    """

    def __init__(self, func: Callable[[Array], Array], name: Any = None) -> None:
        super().__init__(name, apply_image=func, apply_coords=lambda coords: coords)


class TransformList(BaseTransform):
    """Apply several transforms in order.

    Each ``apply_…`` calls the method of every transform. ``+`` joins lists, or a list and a transform.

    Args:
        tfms: the transforms.

    Raises:
        ConfigError: an item is not a transform.
    """

    def __init__(self, tfms: Iterable[Any]) -> None:
        self.tfms = list(tfms)
        for each in self.tfms:
            if not isinstance(each, BaseTransform):
                raise CheckError(f"TransformList got {each!r}; expected an imgaug.Transform")

    def _apply(self, x: Any, meth: str) -> Any:
        for each in self.tfms:
            x = getattr(each, meth)(x)
        return x

    def __add__(self, other: Any) -> TransformList:
        return TransformList([*self.tfms, *_as_list(other)])

    def __radd__(self, other: Any) -> TransformList:
        return TransformList([*_as_list(other), *self.tfms])

    def __iadd__(self, other: Any) -> TransformList:
        self.tfms = (self + other).tfms
        return self

    def __repr__(self) -> str:
        return f"imgaug.TransformList([\n{list_lines(self.tfms)}])"


class LazyTransform(BaseTransform):
    """A transform that is created when it gets the first image.

    Args:
        get_transform: takes that image and returns the transform.
    """

    def __init__(self, get_transform: Callable[[Array], Any]) -> None:
        self.get_transform = get_transform
        self._transform: Any = None

    def apply_image(self, img: Array) -> Array:
        """Transform an image; the first image determines the transform."""
        if self._transform is None:
            self._transform = self.get_transform(img)
        return self._transform.apply_image(img)

    def _apply(self, x: Any, meth: str) -> Any:
        if self._transform is None:
            raise CheckError(
                f"{meth} of a transform that depends on the image was called before apply_image: apply it to the image "
                "first"
            )
        return getattr(self._transform, meth)(x)

    def __repr__(self) -> str:
        made = self._transform
        return f"LazyTransform(get_transform={self.get_transform})" if made is None else repr(made)


def list_lines(items: Iterable[Any]) -> str:
    """Return the `repr` of list items, one per line."""
    return ",\n".join(f"  {item!r}" for item in items)


def _as_list(transform: BaseTransform) -> list[Any]:
    return transform.tfms if isinstance(transform, TransformList) else [transform]


def _floating(coords: Array) -> Any:
    return coords.dtype if np.issubdtype(coords.dtype, np.floating) else np.float64
