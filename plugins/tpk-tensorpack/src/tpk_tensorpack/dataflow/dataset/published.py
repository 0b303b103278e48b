"""Find and read the files of published data sets; missing files raise an error that says where to put them."""

from __future__ import annotations

import os
import tarfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.base import RNGDataFlow
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.missing import optional_library
from tpk_tensorpack.utils import logger

__all__ = ["IndexedData", "LabelledImages", "check_split", "extract", "load_mat", "read_image", "reading", "require"]


class IndexedData(RNGDataFlow):
    """A data set of numbered datapoints, delivered in order, or in a new order in each epoch with `shuffle`.

    A subclass defines ``__len__`` and `get`, and sets `shuffle`.
    """

    refills_arrays = False
    shuffle: bool

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of datapoints."""

    @abstractmethod
    def get(self, index: int) -> list[Any]:
        """Return the datapoint with this number."""

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(len(self))
        if self.shuffle:
            self.rng.shuffle(order)
        for index in order:
            yield self.get(index)


class LabelledImages(IndexedData):
    """Images from files, with labels.

    A subclass sets `shuffle` and `imglist`: the path and label of each image.
    """

    imglist: list[tuple[str, int]]

    def __len__(self) -> int:
        return len(self.imglist)

    def get(self, index: int) -> list[Any]:
        """Return the image with this number and its label."""
        path, label = self.imglist[index]
        return [read_image(path, type(self).__name__), label]


def check_split(what: str, name: str, splits: Sequence[str]) -> None:
    """Raise a `ValueError` unless `name` is a split of the data set."""
    if name not in splits:
        raise CheckError(f"{what}: expected one of {', '.join(map(repr, splits))}, not {name!r}")


def require(path: Any, source: str, what: str) -> str:
    """Return the path of a file or directory, which must exist.

    Args:
        path: the path.
        source: where it is published.
        what: the class that reads it.

    Raises:
        FileNotFoundError: it is missing; the message says where to get it and where to put it.
    """
    path = os.fspath(path)
    if os.path.exists(path):
        return path
    directory, name = os.path.split(path)
    raise FileNotFoundError(
        f"{what} reads {path}, which is missing, and downloads nothing by itself: get {name} from {source} and put "
        f"it into {directory}. Name another directory to {what} itself, or, where it has a default, in the environment "
        "variable TENSORPACK_DATASET"
    )


@contextmanager
def reading(path: Any, source: str) -> Iterator[None]:
    """Within the context, convert the errors that a damaged file causes into a `ValueError` that names it.

    Args:
        path: the file.
        source: where to get another copy.
    """
    try:
        yield
    except Exception as error:  # NumPy, pickle, SciPy, tarfile and zlib raise many types
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}): it may be damaged, or its download may be "
            f"incomplete. Get it again from {source}"
        ) from error


def extract(archive: str, directory: str, source: str) -> None:
    """Extract an archive into a directory."""
    logger.info("Extracting %s ...", archive)
    with reading(archive, source), tarfile.open(archive) as files:
        # Early releases of Python 3.10 and 3.11 lack the filter.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(directory)


def load_mat(path: str, source: str, what: str) -> dict[str, Any]:
    """Return the variables of a MATLAB file.

    Raises:
        ImportError: SciPy is missing.
        ValueError: the file is not a MATLAB file; the message names it.
    """
    scipy_io = optional_library("scipy.io", what)
    with reading(path, source):
        variables: dict[str, Any] = scipy_io.loadmat(path)
    return variables


def read_image(path: Any, what: str) -> np.ndarray:
    """Read an image as an array of shape [height, width, 3] in BGR, uint8; a gray image gets three equal channels.

    Raises:
        FileNotFoundError: the file is missing.
        ImportError: OpenCV is missing.
        ValueError: the file is not an image; the message names it.
    """
    cv2 = optional_library("cv2", what)
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{what}: {path}, an image in its list, is missing")
    image: np.ndarray | None = cv2.imread(path, cv2.IMREAD_COLOR)
    if image is None:
        raise CheckError(f"{what}: {path} cannot be read as an image: it may be damaged")
    return image
