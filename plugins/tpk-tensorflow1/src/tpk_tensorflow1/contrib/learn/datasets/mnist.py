"""The MNIST data set, from its four files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["DataSet", "Datasets", "dense_to_one_hot", "extract_images", "extract_labels", "read_data_sets"]

_FILES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}
DEFAULT_SOURCE_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"


class DataSet:
    """Images and labels, which `next_batch` returns in batches.

    Args:
        images: uint8 images of shape [number, rows, columns, 1].
        labels: their labels.
        fake_data: must be False.
        one_hot: ignored, as in TensorFlow 1.
        dtype: float32 for values from 0 to 1, or uint8 for values from 0 to 255.
        reshape: whether to flatten each image.
        seed: the seed of NumPy's global random state, which shuffles the images; by default the seed of the graph.

    Attributes:
        images: the images, in the order of the current epoch.
        labels: the labels, in the same order.
        num_examples: the number of images.
        epochs_completed: how often all images were returned.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = tf.float32,
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        if fake_data:
            raise ValueError("fake_data=True is not supported; write the four files of MNIST with data of your own")
        if tf.as_dtype(dtype) not in (tf.float32, tf.uint8):
            raise TypeError(f"the dtype of images is float32 or uint8, not {dtype!r}")
        of_graph, of_op = tf.compat.v1.get_seed(seed)
        np.random.seed(of_graph if seed is None else of_op)
        if len(images) != len(labels):
            raise ValueError(f"there are {len(images)} images, but {len(labels)} labels")
        if reshape:
            images = images.reshape(len(images), -1)
        if tf.as_dtype(dtype) == tf.float32:
            images = np.multiply(images.astype(np.float32), 1 / 255)
        self.images, self.labels = images, labels
        self.num_examples = len(images)
        self.epochs_completed = 0
        self._next = 0

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> tuple[Any, Any]:
        """Return the next images and labels.

        A batch at the end of an epoch is filled up with images of the next one, which are shuffled again.
        """
        if shuffle and self.epochs_completed == 0 and self._next == 0:
            self._shuffle()
        batch = slice(self._next, self._next + batch_size)
        images, labels = self.images[batch], self.labels[batch]
        self._next += batch_size
        if self._next > self.num_examples:
            self.epochs_completed += 1
            self._next -= self.num_examples
            if shuffle:
                self._shuffle()
            images = np.concatenate([images, self.images[: self._next]])
            labels = np.concatenate([labels, self.labels[: self._next]])
        return images, labels

    def _shuffle(self) -> None:
        order = np.arange(self.num_examples)
        np.random.shuffle(order)
        self.images, self.labels = self.images[order], self.labels[order]


class Datasets(NamedTuple):
    """The three parts of a data set."""

    train: Any
    validation: Any
    test: Any


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = tf.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = DEFAULT_SOURCE_URL,
) -> Datasets:
    """Read MNIST, or a data set with the same format, from its four files.

    Args:
        train_dir: the directory of the files.
        fake_data: must be False.
        one_hot: whether labels are one-hot vectors instead of numbers.
        dtype: see `DataSet`.
        reshape: see there.
        validation_size: how many of the images for training are in the validation set instead.
        seed: see `DataSet`.
        source_url: where the files are from. They are not downloaded.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file has another format, or `validation_size` is too large.
    """
    missing = [name for name in _FILES.values() if not Path(train_dir, name).exists()]
    if missing:
        files = f"{', '.join(missing)} from {source_url or DEFAULT_SOURCE_URL}"
        raise FileNotFoundError(f"Nothing is downloaded: put {files} into the directory {train_dir!r}")
    arrays = {}
    for part, name in _FILES.items():
        with Path(train_dir, name).open("rb") as file:
            arrays[part] = extract_images(file) if part.endswith("images") else extract_labels(file, one_hot)
    images, labels = arrays["train_images"], arrays["train_labels"]
    if not 0 <= validation_size <= len(images):
        raise ValueError(f"validation_size={validation_size}: expected a number from 0 to {len(images)}")
    options = {"fake_data": fake_data, "dtype": dtype, "reshape": reshape, "seed": seed}
    return Datasets(
        train=DataSet(images[validation_size:], labels[validation_size:], **options),
        validation=DataSet(images[:validation_size], labels[:validation_size], **options),
        test=DataSet(arrays["test_images"], arrays["test_labels"], **options),
    )


def extract_images(f: BinaryIO) -> np.ndarray:
    """Return the images in a gzipped IDX file, as a uint8 array of shape [number, rows, columns, 1]."""
    return _read_idx(f, 2051, 3)[..., np.newaxis]


def extract_labels(f: BinaryIO, one_hot: bool = False, num_classes: int = 10) -> np.ndarray:
    """Return the labels in a gzipped IDX file, as a uint8 array or as one-hot vectors."""
    labels = _read_idx(f, 2049, 1)
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def dense_to_one_hot(labels_dense: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the one-hot vectors of labels, as float64."""
    return np.eye(num_classes)[labels_dense]


def _read_idx(f: BinaryIO, magic: int, rank: int) -> np.ndarray:
    """Read the format of http://yann.lecun.com/exdb/mnist: a magic number and the shape as integers, then the bytes."""
    with gzip.GzipFile(fileobj=f) as file:
        content = file.read()
    found, *shape = np.frombuffer(content, ">i4", 1 + rank).tolist()
    if found != magic:
        raise ValueError(f"{f.name} is not an IDX file of rank {rank}: it begins with {found} instead of {magic}")
    return np.frombuffer(content, np.uint8, offset=4 * (1 + rank)).reshape(shape)
