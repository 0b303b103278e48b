"""CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.dataset.published import check_choice, extract, reading
from tpk_tensorpack.dataflow.raw import DataFromList
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.fs import get_dataset_path

__all__ = ["Cifar10", "Cifar100", "CifarBase"]

_URL = "https://www.cs.toronto.edu/~kriz/cifar.html"
_DIRECTORIES = {10: "cifar-10-batches-py", 100: "cifar-100-python"}
_TRAIN = {10: [f"data_batch_{number}" for number in range(1, 6)], 100: ["train"]}
_TEST = {10: ["test_batch"], 100: ["test"]}
_META = {10: ("batches.meta", b"label_names"), 100: ("meta", b"fine_label_names")}
_LABELS = {10: b"labels", 100: b"fine_labels"}


class CifarBase(DataFromList):
    """CIFAR images of shape [32, 32, 3] in RGB, uint8, and their labels.

    It reads the "python version", the directory ``cifar-10-batches-py`` or ``cifar-100-python``; where only the archive
    is there (``cifar-10-python.tar.gz``, ``cifar-100-python.tar.gz``), it is extracted next to itself. Reading these
    pickles can run code: use only the original files.

    Args:
        train_or_test: ``"train"`` or ``"test"``.
        shuffle: whether to shuffle before each epoch; by default in training.
        dir: the directory that contains it; by default ``cifar10_data`` or ``cifar100_data`` below
            `get_dataset_path`.
        cifar_classnum: 10 or 100.

    Attributes:
        data: the list of datapoints.

    Raises:
        FileNotFoundError: both are missing.
        ValueError: there is no such part or number of classes, or a file is damaged.
    """

    def __init__(
        self, train_or_test: str, shuffle: bool | None = None, dir: str | None = None, cifar_classnum: int = 10
    ) -> None:
        check_choice(self, train_or_test, ("train", "test"))
        check_choice(self, cifar_classnum, (10, 100))
        self.train_or_test = train_or_test
        self.cifar_classnum = cifar_classnum
        self.dir = get_dataset_path(f"cifar{cifar_classnum}_data") if dir is None else dir
        self._directory = os.path.join(self.dir, _DIRECTORIES[cifar_classnum])
        if not os.path.isdir(self._directory):
            extract(os.path.join(self.dir, f"cifar-{cifar_classnum}-python.tar.gz"), _URL)
        logger.info("Found cifar%d data in %s.", cifar_classnum, self.dir)
        name, key = _META[cifar_classnum]
        self._label_names = [label.decode() for label in self._load(name)[key]]
        images, labels = self._images_and_labels([train_or_test])
        self.data = list(map(list, zip(images, labels, strict=True)))
        super().__init__(self.data, train_or_test == "train" if shuffle is None else shuffle)

    def get_per_pixel_mean(self, names: Sequence[str] = ("train", "test")) -> np.ndarray:
        """Return the mean image of these splits, [32, 32, 3], float32.

        Args:
            names: ``"train"``, ``"test"`` or both.
        """
        return self._mean(names, axis=0)

    def get_per_channel_mean(self, names: Sequence[str] = ("train", "test")) -> np.ndarray:
        """Return the mean of each channel over these splits, [3], float32.

        Args:
            names: ``"train"``, ``"test"`` or both.
        """
        return self._mean(names, axis=(0, 1, 2))

    def get_label_names(self) -> list[str]:
        """Return the class names."""
        return self._label_names

    def _mean(self, names: Sequence[str], axis: int | tuple[int, ...]) -> np.ndarray:
        for name in names:
            check_choice(self, name, ("train", "test"))
        images, _ = self._images_and_labels(names)
        # Summing 60,000 float32 values would lose precision, and a float64 copy of all images takes more than a
        # gigabyte.
        return np.mean(images, axis=axis, dtype=np.float64).astype(np.float32)

    def _images_and_labels(self, names: Sequence[str]) -> tuple[np.ndarray, list[int]]:
        files = {"train": _TRAIN[self.cifar_classnum], "test": _TEST[self.cifar_classnum]}
        key = _LABELS[self.cifar_classnum]
        batches = [self._load(file) for name in names for file in files[name]]
        images = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), [label for batch in batches for label in batch[key]]

    def _load(self, name: str) -> Any:
        path = os.path.join(self._directory, name)
        with reading(path, _URL), open(path, "rb") as file:
            return pickle.load(file, encoding="bytes")


class Cifar10(CifarBase):
    """CIFAR-10; see `CifarBase`.

    Args:
        train_or_test: ``"train"`` or ``"test"``.
        shuffle: whether to shuffle before each epoch; by default in training.
        dir: the directory of the data; by default ``cifar10_data`` below `get_dataset_path`.
    """

    def __init__(self, train_or_test: str, shuffle: bool | None = None, dir: str | None = None) -> None:
        super().__init__(train_or_test, shuffle, dir, 10)


class Cifar100(CifarBase):
    """CIFAR-100 with its "fine" classes; see `CifarBase`.

    Args:
        train_or_test: ``"train"`` or ``"test"``.
        shuffle: whether to shuffle before each epoch; by default in training.
        dir: the directory of the data; by default ``cifar100_data`` below `get_dataset_path`.
    """

    def __init__(self, train_or_test: str, shuffle: bool | None = None, dir: str | None = None) -> None:
        super().__init__(train_or_test, shuffle, dir, 100)
