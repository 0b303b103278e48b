"""ImageNet with 1000 classes (ILSVRC 2012), and Tiny ImageNet with 200."""

from __future__ import annotations

import os
import xml.etree.ElementTree
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tpk_tensorpack.dataflow.dataset.published import LabelledImages, check_choice, extract, reading, require
from tpk_tensorpack.dataflow.image import read_image
from tpk_tensorpack.dataflow.raw import DataFromList
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.fs import get_dataset_path
from tpk_tensorpack.utils.loadcaffe import get_caffe_pb
from tpk_tensorpack.utils.opencv import cv2

__all__ = ["ILSVRC12", "ILSVRC12Files", "ILSVRCMeta", "TinyImageNet"]

_META_URL = "http://dl.caffe.berkeleyvision.org/caffe_ilsvrc12.tar.gz"
_TINY_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
_URL = (
    "https://image-net.org/download-images (ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar, ILSVRC2012_img_test.tar)"
)


class ILSVRCMeta:
    """The classes and lists of ILSVRC 2012, as published by Caffe.

    It reads the files of ``caffe_ilsvrc12.tar.gz``; if only the archive is there, it is extracted next to itself.

    Args:
        dir: the directory of these files; by default ``ilsvrc_metadata`` below `get_dataset_path`.

    Raises:
        FileNotFoundError: both are missing.
        ValueError: a file is damaged.
    """

    def __init__(self, dir: str | None = None) -> None:
        self.dir = os.path.expanduser(get_dataset_path("ilsvrc_metadata") if dir is None else dir)
        if not os.path.isfile(os.path.join(self.dir, "synsets.txt")):
            extract(os.path.join(self.dir, "caffe_ilsvrc12.tar.gz"), _META_URL)

    def get_synset_words_1000(self) -> dict[int, str]:
        """Return the identifier and the words of each class, by number: ``"n01440764 tench, Tinca tinca"``."""
        return dict(enumerate(self._lines("synset_words.txt")))

    def get_synset_1000(self) -> dict[int, str]:
        """Return the identifier of each class, by number: ``"n01440764"``."""
        return dict(enumerate(self._lines("synsets.txt")))

    def get_image_list(self, name: str, dir_structure: str = "original") -> list[tuple[str, int]]:
        """Return the paths of the images, relative to the directory `name`, and their labels.

        Args:
            name: ``"train"``, ``"val"`` or ``"test"``; the labels of ``"test"`` are unknown and given as 0.
            dir_structure: ``"original"``, or ``"train"`` for one directory per class in every split.
        """
        check_choice(self, name, ("train", "val", "test"))
        check_choice(self, dir_structure, ("original", "train"))
        synsets = self.get_synset_1000()
        found = []
        with reading(os.path.join(self.dir, f"{name}.txt"), _META_URL):
            for line in self._lines(f"{name}.txt"):
                path, label = line.split()
                if name != "train" and dir_structure == "train":
                    path = f"{synsets[int(label)]}/{path}"
                found.append((path, int(label)))
        return found

    def get_per_pixel_mean(self, size: tuple[int, int] | None = None) -> np.ndarray:
        """Return the mean of the training images, [height, width, 3] in BGR, float32 in [0, 255].

        Args:
            size: height and width; by default 256 and 256. Other sizes need OpenCV.
        """
        path = os.path.join(self.dir, "imagenet_mean.binaryproto")
        blob = get_caffe_pb().BlobProto()
        with reading(path, _META_URL), open(path, "rb") as file:
            blob.ParseFromString(file.read())
            mean = np.array(blob.data, np.float32).reshape(3, 256, 256).transpose(1, 2, 0)
        if size is None:
            return mean
        resized: np.ndarray = cv2.resize(mean, (size[1], size[0]))
        return resized

    @staticmethod
    def guess_dir_structure(dir: str) -> str:
        """Return ``"train"`` for a directory with one subdirectory per class, else ``"original"``.

        Args:
            dir: for example ``/path/to/imagenet/val``.

        Raises:
            FileNotFoundError: the directory is missing.
        """
        entries = os.listdir(require(dir, _URL))
        is_by_class = any(entry.startswith("n") and os.path.isdir(os.path.join(dir, entry)) for entry in entries)
        structure = "train" if is_by_class else "original"
        logger.info("[ILSVRC12] Assuming directory %s has '%s' structure.", dir, structure)
        return structure

    def _lines(self, name: str) -> list[str]:
        with open(require(os.path.join(self.dir, name), _META_URL)) as file:
            return [line.strip() for line in file if line.strip()]


class ILSVRC12Files(DataFromList):
    """`ILSVRC12` with paths instead of images, for decoding in separate processes."""

    def __init__(
        self,
        dir: str,
        name: str,
        meta_dir: str | None = None,
        shuffle: bool | None = None,
        dir_structure: str | None = None,
    ) -> None:
        check_choice(self, name, ("train", "val", "test"))
        self.name = name
        self.full_dir = require(os.path.join(os.path.expanduser(dir), name), _URL)
        if name == "train":
            dir_structure = "train"
        elif dir_structure is None:
            dir_structure = ILSVRCMeta.guess_dir_structure(self.full_dir)
        self.imglist = ILSVRCMeta(meta_dir).get_image_list(name, dir_structure)
        for path, _ in self.imglist[:10]:
            require(os.path.join(self.full_dir, path), _URL)
        super().__init__(self.imglist, name == "train" if shuffle is None else shuffle)

    def __iter__(self) -> Iterator[Any]:
        for path, label in super().__iter__():
            yield [os.path.join(self.full_dir, path), label]


class ILSVRC12(ILSVRC12Files):
    """ILSVRC 2012, "ImageNet": images of [height, width, 3] in BGR, uint8, and labels from 0 to 999.

    Classes are numbered as in ``synsets.txt`` of ``caffe_ilsvrc12.tar.gz``; see `ILSVRCMeta`. Images are read with
    OpenCV.

    Args:
        dir: the directory that contains ``train``, ``val`` and ``test``. ``train`` has one directory per class
            (``n02134418/n02134418_198.JPEG``); the others contain the images (``ILSVRC2012_val_00000001.JPEG``).
        name: ``"train"``, ``"val"`` or ``"test"``.
        meta_dir: the directory of the lists; see `ILSVRCMeta`.
        shuffle: whether to shuffle before each epoch; by default in training.
        dir_structure: ``"original"``, or ``"train"`` if ``val`` also has one directory per class; detected by default.

    Raises:
        FileNotFoundError: a directory, a list or one of the first ten images is missing.
        ImportError: OpenCV is missing.
        ValueError: `name` is unknown, an image is missing, or a file is damaged.
    """

    def __iter__(self) -> Iterator[Any]:
        for path, label in super().__iter__():
            yield [read_image(path), label]

    @staticmethod
    def get_training_bbox(bbox_dir: str, imglist: Sequence[tuple[str, int]]) -> list[np.ndarray | None]:
        """Return the bounding box of the object in each training image: ``[xmin, ymin, xmax, ymax]``, float32.

        Args:
            bbox_dir: the directory with files such as ``n02134418/n02134418_198.xml``, from
                ``ILSVRC2012_bbox_train_v2.tar.gz``.
            imglist: paths and labels, as `ILSVRCMeta.get_image_list` returns them.

        Returns:
            The box of each image, or None for most of them, which have no box.
        """
        boxes = [_first_box(os.path.join(bbox_dir, os.path.splitext(path)[0] + ".xml")) for path, _ in imglist]
        logger.info("%d/%d images have bounding box.", sum(box is not None for box in boxes), len(boxes))
        return boxes


def _first_box(path: str) -> np.ndarray | None:
    """Return the box of the first object in a PASCAL VOC file, or None if the file is missing."""
    if not os.path.isfile(path):
        return None
    with reading(path, "https://image-net.org/download-images (ILSVRC2012_bbox_train_v2.tar.gz)"):
        tree = xml.etree.ElementTree.parse(path)
        corners = [tree.findtext(f"object/bndbox/{name}", "") for name in ("xmin", "ymin", "xmax", "ymax")]
        return np.array([float(corner) for corner in corners], np.float32)


class TinyImageNet(LabelledImages):
    """Tiny ImageNet: images of shape [64, 64, 3] in BGR, uint8, in 200 classes.

    It reads the directory of ``tiny-imagenet-200.zip`` with OpenCV. Classes are numbered as in ``wnids.txt``; the
    images of each class are sorted by name.

    Args:
        dir: the directory that contains ``wnids.txt``, ``train`` and ``val``.
        name: ``"train"`` or ``"val"``.
        shuffle: whether to shuffle before each epoch; by default in training.

    Raises:
        FileNotFoundError: a list is missing.
        ImportError: OpenCV is missing.
        ValueError: `name` is unknown, an image is missing, or a file is damaged.
    """

    def __init__(self, dir: str, name: str, shuffle: bool | None = None) -> None:
        check_choice(self, name, ("train", "val"))
        directory = os.path.expanduser(dir)
        self.full_dir = os.path.join(directory, name)
        with open(require(os.path.join(directory, "wnids.txt"), _TINY_URL)) as file:
            numbers = {synset: number for number, synset in enumerate(file.read().split())}
        imglist = []
        if name == "train":
            for synset, number in numbers.items():
                images = require(os.path.join(self.full_dir, synset, "images"), _TINY_URL)
                imglist += [(os.path.join(images, image), number) for image in sorted(os.listdir(images))]
        else:
            path = os.path.join(self.full_dir, "val_annotations.txt")
            with reading(path, _TINY_URL), open(path) as file:
                for line in file:
                    image, synset = line.split()[:2]
                    imglist.append((os.path.join(self.full_dir, "images", image), numbers[synset]))
        super().__init__(imglist, name == "train" if shuffle is None else shuffle)
