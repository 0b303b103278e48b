"""Find and read the files of published data sets; missing files raise an error that says where to put them."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tpk_tensorpack.dataflow.image import read_image
from tpk_tensorpack.dataflow.raw import DataFromList
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils import logger

__all__ = ["LabelledImages", "check_choice", "extract", "reading", "require"]


class LabelledImages(DataFromList):
    """Images from files, with labels.

    Args:
        imglist: the path and label of each image.
        shuffle: whether to shuffle before each epoch.
    """

    def __init__(self, imglist: list[tuple[str, int]], shuffle: bool) -> None:
        super().__init__(imglist, shuffle)
        self.imglist = imglist

    def __iter__(self) -> Iterator[Any]:
        for path, label in super().__iter__():
            yield [read_image(path), label]


def check_choice(owner: object, value: Any, choices: Sequence[Any]) -> None:
    """Raise an error unless a value, such as the name of a split, is one of `choices`."""
    if value not in choices:
        raise CheckError(f"{type(owner).__name__}: expected one of {', '.join(map(repr, choices))}, not {value!r}")


def require(path: str, source: str) -> str:
    """Return the path of a file or directory, which must exist.

    Args:
        path: the path.
        source: where it is published.

    Raises:
        FileNotFoundError: it is missing; the message says where to get it and where to put it.
    """
    if os.path.exists(path):
        return path
    directory, name = os.path.split(path)
    raise FileNotFoundError(
        f"{path} is missing, and nothing is downloaded automatically: get {name} from {source} and put it into "
        f"{directory}. The environment variable TENSORPACK_DATASET sets the parent of the default directories"
    )


@contextmanager
def reading(path: str, source: str) -> Iterator[None]:
    """Within the context, convert the errors that a damaged file causes into a `ValueError` that names it.

    Args:
        path: the file.
        source: where it is published.

    Raises:
        FileNotFoundError: the file is missing; see `require`.
    """
    require(path, source)
    try:
        yield
    except PermissionError:
        raise
    except Exception as error:  # NumPy, pickle, SciPy, tarfile and zlib raise many types
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}): it may be damaged, or its download may be "
            f"incomplete. Get it again from {source}"
        ) from error


def extract(archive: str, source: str) -> None:
    """Extract an archive into its directory; see `reading`."""
    logger.info("Extracting %s ...", archive)
    with reading(archive, source), tarfile.open(archive) as files:
        # Early releases of Python 3.10 and 3.11 lack the filter.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(os.path.dirname(archive))
