"""Data flows of images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.base import RNGDataFlow
from tpk_tensorpack.dataflow.common import MapData, MapDataComponent
from tpk_tensorpack.dataflow.imgaug.base import AugmentorList, check_image
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.argtools import shape2d
from tpk_tensorpack.utils.opencv import cv2

__all__ = ["AugmentImageComponent", "AugmentImageComponents", "AugmentImageCoordinates", "ImageFromFile"]


class ImageFromFile(RNGDataFlow):
    """Images read from files: one ``uint8`` component of shape ``[height, width, channels]``, in RGB.

    Args:
        files: their paths.
        channel: 3, or 1 for gray images.
        resize: height and width, or one number for both; None leaves them as they are.
        shuffle: whether to shuffle before each pass.

    Raises:
        ConfigError: `channel` is invalid, or `files` is empty.
        InputError: (when iterating) a file cannot be read as an image; the message names it.
    """

    refills_arrays = False

    def __init__(
        self,
        files: Sequence[str],
        channel: int = 3,
        resize: int | Sequence[int] | None = None,
        shuffle: bool = False,
    ) -> None:
        if channel not in (1, 3):
            raise CheckError(f"ImageFromFile(channel={channel}): expected 1 or 3")
        if not len(files):
            raise CheckError("ImageFromFile got an empty list of files")
        self.files = list(files)
        self.channel = channel
        self.resize = None if resize is None else shape2d(resize)
        self.shuffle = shuffle

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Any]:
        if self.shuffle:
            self.rng.shuffle(self.files)
        for path in self.files:
            yield [self._read(path)]

    def _read(self, path: str) -> Any:
        image = read_image(path, is_gray=self.channel == 1)
        if self.resize is not None:
            image = cv2.resize(image, tuple(self.resize[::-1]))
        # OpenCV reads BGR.
        return image[:, :, np.newaxis] if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def read_image(path: str, is_gray: bool = False) -> np.ndarray:
    """Read an image as a uint8 array of shape [height, width, 3] in BGR, or [height, width] with `is_gray`.

    Raises:
        ImportError: OpenCV is missing.
        InputError: the file is missing, or not an image; the message names it.
    """
    image: np.ndarray | None = cv2.imread(path, cv2.IMREAD_GRAYSCALE if is_gray else cv2.IMREAD_COLOR)
    if image is None:
        raise CheckError(f"{path} cannot be read as an image: it may be damaged or missing")
    return image


class _Augmenting(MapData):
    """Base class of flows that augment images; resets their augmentors."""

    def __init__(self, ds: Iterable[Any], augmentors: Any, copy: bool, catch_exceptions: bool, *options: Any) -> None:
        self.augs = augmentors if isinstance(augmentors, AugmentorList) else AugmentorList(augmentors)
        self._copy = copy
        self._failures = 0
        super().__init__(ds, self._augment_or_skip if catch_exceptions else self._aug_mapper, *options)

    def reset_state(self) -> None:
        """Reset the data flow and reseed the random numbers."""
        super().reset_state()
        self.augs.reset_state()

    @abstractmethod
    def _aug_mapper(self, what: Any) -> Any:
        """Augment a component or a datapoint."""

    def _augment_or_skip(self, what: Any) -> Any:
        try:
            return self._aug_mapper(what)
        except Exception:  # the user asked for it
            self._failures += 1
            if self._failures < 10 or self._failures % 100 == 0:
                logger.exception("%s dropped %d datapoints so far; the last one", type(self).__name__, self._failures)
            return None

    def _image(self, image: Any) -> Any:
        check_image(image)
        return image.copy() if self._copy else image

    def _coordinates(self, coords: Any) -> Any:
        is_array = isinstance(coords, np.ndarray)
        if not is_array or coords.ndim != 2 or coords.shape[1] != 2 or not np.issubdtype(coords.dtype, np.floating):
            what = f"{coords.dtype} of shape {coords.shape}" if is_array else type(coords).__name__
            raise CheckError(
                f"{type(self).__name__} got {what} instead of coordinates; expected floating-point numbers of shape "
                "[n, 2]"
            )
        return coords.copy() if self._copy else coords


class AugmentImageComponent(_Augmenting, MapDataComponent):
    """Augment one image in each datapoint.

    Args:
        ds: the data flow.
        augmentors: a list of augmentors or an `AugmentorList`, applied in this order.
        index: the index or key of the image in a datapoint.
        copy: whether to augment a copy; some augmentors work in place.
        catch_exceptions: skip datapoints that fail; the first nine errors and every hundredth are logged.

    Raises:
        ConfigError: an item is not an augmentor.
    """

    def __init__(
        self,
        ds: Iterable[Any],
        augmentors: Any,
        index: int | str = 0,
        copy: bool = True,
        catch_exceptions: bool = False,
    ) -> None:
        super().__init__(ds, augmentors, copy, catch_exceptions, index)

    def _aug_mapper(self, image: Any) -> Any:
        return self.augs.augment(self._image(image))


class AugmentImageComponents(_Augmenting):
    """Augment several images of each datapoint in the same way, and coordinates in them.

    Args:
        ds: the data flow.
        augmentors: a list of augmentors or an `AugmentorList`, applied in this order.
        index: the indices or keys of the images in a datapoint; the random numbers are drawn for the first one.
        coords_index: the indices or keys of coordinates: floating-point arrays of shape ``[n, 2]`` (x, y).
        copy: whether to augment copies; some augmentors work in place.
        catch_exceptions: skip datapoints that fail; the first nine errors and every hundredth are logged.

    Raises:
        ConfigError: an item is not an augmentor.

    Example:
        ```python
        flow = AugmentImageComponents(flow, augmentors, index=(0, 1), coords_index=(2,))  # image, mask, key points
        ```
    """

    def __init__(
        self,
        ds: Iterable[Any],
        augmentors: Any,
        index: Sequence[int | str] = (0, 1),
        coords_index: Sequence[int | str] = (),
        copy: bool = True,
        catch_exceptions: bool = False,
    ) -> None:
        self._index, self._coords_index = tuple(index), tuple(coords_index)
        super().__init__(ds, augmentors, copy, catch_exceptions)

    def _aug_mapper(self, dp: Any) -> Any:
        augmented = dict(dp) if isinstance(dp, dict) else list(dp)
        images = [self._image(dp[index]) for index in self._index]
        transform = self.augs.get_transform(images[0])
        for index, image in zip(self._index, images, strict=True):
            augmented[index] = transform.apply_image(image)
        for index in self._coords_index:
            augmented[index] = transform.apply_coords(self._coordinates(dp[index]))
        return augmented


class AugmentImageCoordinates(AugmentImageComponents):
    """Augment an image of each datapoint and coordinates in it.

    Args:
        ds: the data flow.
        augmentors: a list of augmentors or an `AugmentorList`, applied in this order.
        img_index: the index or key of the image in a datapoint.
        coords_index: the index or key of the coordinates: a floating-point array of shape ``[n, 2]`` (x, y).
        copy: whether to augment a copy; some augmentors work in place.
        catch_exceptions: skip datapoints that fail; the first nine errors and every hundredth are logged.

    Raises:
        ConfigError: an item is not an augmentor.
    """

    def __init__(
        self,
        ds: Iterable[Any],
        augmentors: Any,
        img_index: int | str = 0,
        coords_index: int | str = 1,
        copy: bool = True,
        catch_exceptions: bool = False,
    ) -> None:
        super().__init__(ds, augmentors, (img_index,), (coords_index,), copy, catch_exceptions)
