"""Places365."""

from __future__ import annotations

import os

from tpk_tensorpack.dataflow.dataset.published import LabelledImages, check_choice, reading
from tpk_tensorpack.utils import logger

__all__ = ["Places365Standard"]

_URL = "http://places2.csail.mit.edu/download.html"


class Places365Standard(LabelledImages):
    """Places365-Standard in low resolution: images of shape [256, 256, 3] in BGR, uint8, and labels from 0 to 364.

    It reads the "easy directory structure" (``places365standard_easyformat.tar``): ``train.txt`` and ``val.txt``, which
    list files such as ``train/airfield/00000001.jpg``, and the images, with OpenCV.

    Args:
        dir: the directory of those two files.
        name: ``"train"`` or ``"val"``.
        shuffle: whether to shuffle before each epoch; by default in training.

    Raises:
        FileNotFoundError: the list is missing.
        ImportError: OpenCV is missing.
        ValueError: `name` is unknown, or an image is missing, or a file is damaged.
    """

    def __init__(self, dir: str, name: str, shuffle: bool | None = None) -> None:
        check_choice(self, name, ("train", "val"))
        directory = os.path.expanduser(dir)
        self.name = name
        path = os.path.join(directory, f"{name}.txt")
        with reading(path, _URL), open(path) as file:
            files = [line.strip() for line in file if line.strip()]
            classes = [line.split("/")[1] for line in files]
        self._labels = sorted(set(classes))
        numbers = {label: number for number, label in enumerate(self._labels)}
        paths = [os.path.join(directory, file) for file in files]
        labels = [numbers[label] for label in classes]
        super().__init__(list(zip(paths, labels, strict=True)), name == "train" if shuffle is None else shuffle)
        logger.info("Found %d images in %s.", len(files), path)

    def get_label_names(self) -> list[str]:
        """Return the class names."""
        return self._labels
