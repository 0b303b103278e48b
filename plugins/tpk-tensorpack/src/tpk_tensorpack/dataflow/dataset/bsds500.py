"""The Berkeley Segmentation Data Set."""

from __future__ import annotations

import os

import numpy as np

from tpk_tensorpack.dataflow.dataset.published import check_choice, extract, reading, require
from tpk_tensorpack.dataflow.image import read_image
from tpk_tensorpack.dataflow.raw import ArrayRows
from tpk_tensorpack.missing import optional_library
from tpk_tensorpack.utils.fs import get_dataset_path

__all__ = ["BSDS500"]

_URL = "http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/BSR_bsds500.tgz"
_HEIGHT, _WIDTH = 321, 481


class BSDS500(ArrayRows):
    """BSDS500: images of shape [321, 481, 3] in BGR, uint8, and human-drawn edges.

    The label has shape [321, 481], float32 in [0, 1]: for each pixel, the fraction of annotators who drew an edge
    there. Portrait images are rotated. The directory ``BSR`` is read with OpenCV and SciPy; if only the archive
    ``BSR_bsds500.tgz`` is there, it is extracted next to itself. The images are sorted by name.

    Args:
        name: ``"train"``, ``"test"`` or ``"val"``.
        data_dir: the directory that holds ``BSR``; by default ``bsds500_data`` below `get_dataset_path`.
        shuffle: whether to shuffle before each epoch.

    Attributes:
        data: the images, [N, 321, 481, 3].
        label: their labels, [N, 321, 481].

    Raises:
        FileNotFoundError: both are missing.
        ImportError: OpenCV or SciPy is missing.
        ValueError: `name` is unknown, or a file is damaged.
    """

    def __init__(self, name: str, data_dir: str | None = None, shuffle: bool = True) -> None:
        check_choice(self, name, ("train", "test", "val"))
        directory = get_dataset_path("bsds500_data") if data_dir is None else data_dir
        if not os.path.isdir(os.path.join(directory, "BSR")):
            extract(os.path.join(directory, "BSR_bsds500.tgz"), _URL)
        self.data_root = os.path.join(directory, "BSR", "BSDS500", "data")
        images = require(os.path.join(self.data_root, "images", name), _URL)
        truth = os.path.join(self.data_root, "groundTruth", name)
        stems = sorted(os.path.splitext(file)[0] for file in os.listdir(images) if file.endswith(".jpg"))
        self.data = np.zeros((len(stems), _HEIGHT, _WIDTH, 3), np.uint8)
        self.label = np.zeros((len(stems), _HEIGHT, _WIDTH), np.float32)
        loadmat = optional_library("scipy.io", "BSDS500").loadmat
        for number, stem in enumerate(stems):
            self.data[number] = _lying(read_image(os.path.join(images, f"{stem}.jpg")))
            path = os.path.join(truth, f"{stem}.mat")
            with reading(path, _URL):
                boundaries = [person["Boundaries"][0][0] for person in loadmat(path)["groundTruth"][0]]
                self.label[number] = _lying(np.mean(boundaries, axis=0, dtype=np.float32))
        super().__init__([self.data, self.label], shuffle)


def _lying(image: np.ndarray) -> np.ndarray:
    return image.swapaxes(0, 1) if image.shape[0] > image.shape[1] else image
