"""Small data sets in the published formats, to test their readers."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile

import cv2
import numpy as np


def write_all(root, cifar=3):
    """Write each data set where tensorpack looks for it below `root`; CIFAR gets this many images per batch."""
    rng = np.random.RandomState(0)
    write_mnist(rng, root / "mnist_data")
    write_mnist(rng, root / "fashion_mnist_data")
    write_cifar10(rng, root / "cifar10_data", cifar)
    write_cifar100(rng, root / "cifar100_data", 5 * cifar, cifar)
    write_svhn(rng, root / "svhn_data")
    write_caltech101(rng, root / "caltech101_data")
    write_bsds500(rng, root / "bsds500_data")
    write_ilsvrc12(rng, root / "imagenet", root / "ilsvrc_metadata")
    write_tiny_imagenet(rng, root / "tiny")
    write_places365(rng, root / "places")


def write_mnist(rng, directory, train=7, test=3):
    directory.mkdir(parents=True)
    for prefix, count in {"train": train, "t10k": test}.items():
        images = rng.randint(256, size=(count, 28, 28)).astype("uint8")
        labels = rng.randint(10, size=count).astype("uint8")
        with gzip.open(directory / f"{prefix}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">4i", 2051, count, 28, 28) + images.tobytes())
        with gzip.open(directory / f"{prefix}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">2i", 2049, count) + labels.tobytes())


def write_cifar10(rng, directory, count=3):
    directory = directory / "cifar-10-batches-py"
    directory.mkdir(parents=True)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        data = rng.randint(256, size=(count, 3072)).astype("uint8")
        labels = rng.randint(10, size=count).tolist()
        names = [b"%d.png" % number for number in range(count)]
        batch = {b"batch_label": b"batch", b"labels": labels, b"data": data, b"filenames": names}
        (directory / name).write_bytes(_pickled(batch))
    names = b"airplane automobile bird cat deer dog frog horse ship truck".split()
    meta = {b"num_cases_per_batch": count, b"label_names": names, b"num_vis": 3072}
    (directory / "batches.meta").write_bytes(_pickled(meta))


def write_cifar100(rng, directory, train=15, test=3):
    directory = directory / "cifar-100-python"
    directory.mkdir(parents=True)
    for name, count in {"train": train, "test": test}.items():
        batch = {
            b"filenames": [b"%d.png" % number for number in range(count)],
            b"batch_label": b"batch 1 of 1",
            b"fine_labels": rng.randint(100, size=count).tolist(),
            b"coarse_labels": rng.randint(20, size=count).tolist(),
            b"data": rng.randint(256, size=(count, 3072)).astype("uint8"),
        }
        (directory / name).write_bytes(_pickled(batch))
    meta = {
        b"fine_label_names": [b"fine_%d" % number for number in range(100)],
        b"coarse_label_names": [b"coarse_%d" % number for number in range(20)],
    }
    (directory / "meta").write_bytes(_pickled(meta))


class _Python2Pickler(pickle._Pickler):
    """Pickle bytes like Python 2 pickled its strings."""

    def save_string(self, string):
        self.write(pickle.BINSTRING + struct.pack("<i", len(string)) + string)

    dispatch = {**pickle._Pickler.dispatch, bytes: save_string}


def _pickled(value):
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(value)
    # The name of the module when the data sets were published.
    return file.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def write_svhn(rng, directory):
    """MATLAB 5 files, with the digit 0 labeled as 10."""
    from scipy.io import savemat

    directory.mkdir(parents=True)
    for name, count in {"train": 6, "test": 3, "extra": 4}.items():
        images = rng.randint(256, size=(32, 32, 3, count)).astype("uint8")
        labels = np.append(10, rng.randint(1, 11, size=count - 1)).astype("uint8")
        savemat(directory / f"{name}_32x32.mat", {"X": images, "y": labels[:, None]})


def write_caltech101(rng, directory):
    from scipy.io import savemat

    directory.mkdir(parents=True)
    values = {"classnames": np.array([[f"class {number}" for number in range(101)]], object)}
    for name, count in {"train": 4100, "test": 2307, "val": 2264}.items():
        values[f"{name}_data"] = rng.randint(2, size=(count, 784)).astype("uint8")
        values[f"{name}_labels"] = rng.randint(1, 102, size=(count, 1)).astype("uint8")
    savemat(directory / "caltech101_silhouettes_28_split1.mat", values)


def write_bsds500(rng, directory):
    """Images, some of them upright, and the boundaries drawn by several people."""
    from scipy.io import savemat

    for name, count in {"train": 3, "test": 2, "val": 2}.items():
        images = directory / "BSR/BSDS500/data/images" / name
        truth = directory / "BSR/BSDS500/data/groundTruth" / name
        images.mkdir(parents=True)
        truth.mkdir(parents=True)
        for number in range(count):
            shape = (481, 321) if number == 1 else (321, 481)
            write_image(rng, images / f"{number}.jpg", shape)
            drawn = np.empty((1, 4), object)
            for person in range(4):
                drawn[0, person] = {
                    "Segmentation": np.zeros(shape, "uint16"),
                    "Boundaries": (rng.rand(*shape) < 0.1).astype("uint8"),
                }
            savemat(truth / f"{number}.mat", {"groundTruth": drawn})
        (images / "Thumbs.db").touch()


def write_ilsvrc12(rng, directory, meta, is_extracted=True):
    """Two of the thousand classes have images; the archive of lists contains these, and the mean image."""
    synsets = [f"n{1440764 + number:08d}" for number in range(1000)]
    training = [(f"{synsets[label]}/{synsets[label]}_{number}.JPEG", label) for label in (0, 7) for number in (3, 4)]
    validation = [(f"ILSVRC2012_val_{number:08d}.JPEG", label) for number, label in enumerate([7, 0, 7], 1)]
    testing = [(f"ILSVRC2012_test_{number:08d}.JPEG", 0) for number in (1, 2)]
    for path, _ in training:
        write_image(rng, directory / "train" / path, (8, 9))
    for path, label in validation:
        write_image(rng, directory / "val" / path, (8, 9))
        write_image(rng, directory / "classes" / synsets[label] / path, (8, 9))
    for path, _ in testing:
        write_image(rng, directory / "test" / path, (8, 9), is_gray=True)
    mean = (rng.rand(3, 256, 256) * 255).astype("<f4")
    files = {
        "synsets.txt": "".join(f"{synset}\n" for synset in synsets).encode(),
        "synset_words.txt": "".join(f"{synset} word {n}, other\n" for n, synset in enumerate(synsets)).encode(),
        "train.txt": _lines(training),
        "val.txt": _lines(validation),
        "test.txt": _lines(testing),
        # caffe.BlobProto: num=1, channels=3, height=256, width=256, data=[…] packed.
        "imagenet_mean.binaryproto": b"\x08\x01\x10\x03\x18\x80\x02\x20\x80\x02\x2a\x80\x80\x30" + mean.tobytes(),
    }
    meta.mkdir(parents=True)
    with tarfile.open(meta / "caffe_ilsvrc12.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    if is_extracted:
        for name, content in files.items():
            (meta / name).write_bytes(content)


def _lines(pairs):
    return "".join(f"{path} {label}\n" for path, label in pairs).encode()


def write_boxes(directory, boxes):
    """Write the boxes of ``{"n01440764/n01440764_3.JPEG": (xmin, ymin, xmax, ymax)}`` as PASCAL VOC has them."""
    for path, box in boxes.items():
        file = directory / os.path.splitext(path)[0]
        file = file.with_name(file.name + ".xml")
        file.parent.mkdir(parents=True, exist_ok=True)
        values = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        corners = "".join(f"<{name}>{value}</{name}>" for name, value in values)
        file.write_text(
            "<annotation><size><width>500</width><height>375</height><depth>3</depth></size>"
            f"<object><name>n0</name><bndbox>{corners}</bndbox></object></annotation>"
        )


def write_tiny_imagenet(rng, directory):
    synsets = [f"n{number:08d}" for number in range(200)]
    directory.mkdir(parents=True)
    (directory / "wnids.txt").write_text("\n".join(reversed(synsets)) + "\n")
    for synset in synsets:
        (directory / "train" / synset / "images").mkdir(parents=True)
    for synset in (synsets[3], synsets[50]):
        for number in range(2):
            is_gray = number == 1
            path = directory / "train" / synset / "images" / f"{synset}_{number}.JPEG"
            write_image(rng, path, (64, 64), is_gray)
    lines = []
    for number, synset in enumerate([synsets[50], synsets[3], synsets[199]]):
        write_image(rng, directory / "val/images" / f"val_{number}.JPEG", (64, 64))
        lines.append(f"val_{number}.JPEG\t{synset}\t0\t32\t44\t62\n")
    (directory / "val/val_annotations.txt").write_text("".join(lines))


def write_places365(rng, directory):
    """The "easy" folders in low resolution, and the lists."""
    directory.mkdir(parents=True)
    for name, paths in {
        "train": ["zen_garden/1.jpg", "airfield/1.jpg", "airfield/2.jpg", "forest/broadleaf/1.jpg"],
        "val": ["airfield/Places365_val_1.jpg", "zen_garden/Places365_val_2.jpg"],
    }.items():
        paths = [f"{name}/{path}" for path in paths]
        for path in paths:
            write_image(rng, directory / path, (256, 256))
        (directory / f"{name}.txt").write_text("".join(f"{path}\n" for path in paths))


def write_image(rng, path, shape, is_gray=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = rng.randint(256, size=shape if is_gray else (*shape, 3)).astype("uint8")
    assert cv2.imwrite(str(path), image)
