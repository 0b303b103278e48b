"""The Street View House Numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from tpk_tensorpack.dataflow.dataset.published import check_choice, reading
from tpk_tensorpack.dataflow.raw import ArrayRows
from tpk_tensorpack.missing import optional_library
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.fs import get_dataset_path

__all__ = ["SVHNDigit"]

_URL = "http://ufldl.stanford.edu/housenumbers/"


class SVHNDigit(ArrayRows):
    """The cropped digits of SVHN: images of shape [32, 32, 3], uint8, and labels from 0 to 9.

    It reads ``train_32x32.mat``, ``test_32x32.mat`` and ``extra_32x32.mat`` with SciPy, once per process.

    Args:
        name: ``"train"``, ``"test"`` or ``"extra"``.
        data_dir: the directory of the files; by default ``svhn_data`` below `get_dataset_path`.
        shuffle: whether to shuffle before each epoch.

    Attributes:
        X: the images, [N, 32, 32, 3].
        Y: their labels, [N], uint8.

    Raises:
        FileNotFoundError: the file is missing.
        ImportError: SciPy is missing.
        ValueError: `name` is unknown, or the file is damaged.
    """

    _Cache: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def __init__(self, name: str, data_dir: str | None = None, shuffle: bool = True) -> None:
        check_choice(self, name, ("train", "test", "extra"))
        directory = get_dataset_path("svhn_data") if data_dir is None else data_dir
        path = os.path.join(directory, f"{name}_32x32.mat")
        if path not in self._Cache:
            self._Cache[path] = self._load(path)
        self.X, self.Y = self._Cache[path]
        super().__init__([self.X, self.Y], shuffle)

    @staticmethod
    def _load(path: str) -> tuple[np.ndarray, np.ndarray]:
        logger.info("Loading %s ...", path)
        loadmat = optional_library("scipy.io", "SVHNDigit").loadmat
        with reading(path, _URL):
            variables = loadmat(path)
            images, labels = variables["X"].transpose(3, 0, 1, 2), variables["y"].reshape(-1)
        # The file stores the digit 0 as 10.
        return np.ascontiguousarray(images), np.where(labels == 10, 0, labels).astype(labels.dtype)

    @staticmethod
    def get_per_pixel_mean(names: Sequence[str] = ("train", "test", "extra")) -> np.ndarray:
        """Return the mean image of these splits, in the default directory: [32, 32, 3], float64.

        Args:
            names: the names of the splits.
        """
        images = [SVHNDigit(name).X for name in names]
        total = sum(np.sum(part, axis=0, dtype=np.float64) for part in images)
        mean: np.ndarray = total / sum(map(len, images))
        return mean
