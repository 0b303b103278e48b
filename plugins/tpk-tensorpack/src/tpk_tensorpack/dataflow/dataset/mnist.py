"""MNIST and Fashion-MNIST, which has the same format."""

from __future__ import annotations

import gzip
import os

import numpy as np

from tpk_tensorpack.dataflow.dataset.published import check_choice, reading
from tpk_tensorpack.dataflow.raw import ArrayRows
from tpk_tensorpack.utils.fs import get_dataset_path

__all__ = ["FashionMnist", "Mnist"]


class Mnist(ArrayRows):
    """The handwritten digits of MNIST: 28x28 images, float32 in [0, 1], and labels from 0 to 9.

    It reads ``train-images-idx3-ubyte.gz``, ``train-labels-idx1-ubyte.gz``, ``t10k-images-idx3-ubyte.gz`` and
    ``t10k-labels-idx1-ubyte.gz``.

    Args:
        train_or_test: ``"train"`` or ``"test"``.
        shuffle: whether to shuffle before each epoch.
        dir: the directory of the files; by default ``mnist_data`` below `get_dataset_path`.

    Attributes:
        images: all images, [N, 28, 28, 1].
        labels: their labels, [N], uint8.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: `train_or_test` is invalid, or a file is damaged.

    Example:
        ```python
        df = BatchData(dataset.Mnist("train"), 128)
        ```
    """

    _DIR_NAME = "mnist_data"
    _SOURCE_URL = "http://yann.lecun.com/exdb/mnist/"

    def __init__(self, train_or_test: str, shuffle: bool = True, dir: str | None = None) -> None:
        check_choice(self, train_or_test, ("train", "test"))
        self.train_or_test = train_or_test
        directory = get_dataset_path(self._DIR_NAME) if dir is None else dir
        prefix = "train" if train_or_test == "train" else "t10k"
        images = self._load(os.path.join(directory, f"{prefix}-images-idx3-ubyte.gz"), 3)
        self.labels = self._load(os.path.join(directory, f"{prefix}-labels-idx1-ubyte.gz"), 1)
        self.images = images[..., None].astype("float32") / np.float32(255)
        super().__init__([self.images[..., 0], self.labels], shuffle)

    def _load(self, path: str, ndim: int) -> np.ndarray:
        """Read an IDX file of unsigned bytes: 0, 0, 8, the number of dimensions; these, big-endian int32; values."""
        with reading(path, self._SOURCE_URL):
            with gzip.open(path) as file:
                content = file.read()
            if content[:4] != bytes([0, 0, 8, ndim]):
                raise ValueError(f"it begins with {content[:4]!r}, not with {bytes([0, 0, 8, ndim])!r}")
            shape = np.frombuffer(content, ">i4", count=ndim, offset=4)
            return np.frombuffer(content, np.uint8, offset=4 + 4 * ndim).reshape(shape)


class FashionMnist(Mnist):
    """Fashion-MNIST: images of clothes, with the files and arguments of `Mnist`.

    The default directory is ``fashion_mnist_data`` below `get_dataset_path`.
    """

    _DIR_NAME = "fashion_mnist_data"
    _SOURCE_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"

    def get_label_names(self) -> list[str]:
        """Return the names of the ten classes."""
        return [
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ]
