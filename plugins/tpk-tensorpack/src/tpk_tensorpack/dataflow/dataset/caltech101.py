"""The silhouettes of Caltech 101."""

from __future__ import annotations

import os

from tpk_tensorpack.dataflow.dataset.published import check_choice, reading
from tpk_tensorpack.dataflow.raw import ArrayRows
from tpk_tensorpack.missing import optional_library
from tpk_tensorpack.utils.fs import get_dataset_path

__all__ = ["Caltech101Silhouettes"]


class Caltech101Silhouettes(ArrayRows):
    """The Caltech 101 Silhouettes: 28x28 images of zeros and ones, uint8, and labels from 0 to 100.

    It reads ``caltech101_silhouettes_28_split1.mat`` with SciPy.

    Args:
        name: ``"train"``, ``"test"`` or ``"val"``.
        shuffle: whether to shuffle before each epoch.
        dir: the directory of the file; by default ``caltech101_data`` below `get_dataset_path`.

    Attributes:
        images: all images, [N, 28, 28].
        labels: their labels, [N], uint8.

    Raises:
        FileNotFoundError: the file is missing.
        ImportError: SciPy is missing.
        ValueError: `name` is unknown, or the file is damaged.
    """

    _DIR_NAME = "caltech101_data"
    _SOURCE_URL = "https://people.cs.umass.edu/~marlin/data/"

    def __init__(self, name: str, shuffle: bool = True, dir: str | None = None) -> None:
        check_choice(self, name, ("train", "test", "val"))
        self.name = name
        directory = get_dataset_path(self._DIR_NAME) if dir is None else dir
        path = os.path.join(directory, "caltech101_silhouettes_28_split1.mat")
        loadmat = optional_library("scipy.io", "Caltech101Silhouettes").loadmat
        with reading(path, self._SOURCE_URL):
            self.data = loadmat(path)
            self.images = self.data[f"{name}_data"].reshape(-1, 28, 28)
            # The file numbers classes from 1.
            self.labels = self.data[f"{name}_labels"].reshape(-1) - 1
        super().__init__([self.images, self.labels], shuffle)
