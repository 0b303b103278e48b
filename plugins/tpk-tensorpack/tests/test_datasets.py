"""Readers of data sets, on small files in the published formats; `tests/oracle` compares them with tensorpack's."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tarfile

import cv2
import numpy as np
import published
import pytest
from tpk_tensorpack.dataflow import dataset


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A directory with all data sets, which must not be changed."""
    root = tmp_path_factory.mktemp("data")
    published.write_all(root)
    return root


@pytest.fixture
def root(files, monkeypatch):
    """The same directory, as the default directory."""
    monkeypatch.setenv("TENSORPACK_DATASET", str(files))
    return files


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty directory of data sets."""
    monkeypatch.setenv("TENSORPACK_DATASET", str(tmp_path))
    return tmp_path


def points(df):
    df.reset_state()
    return list(df)


@pytest.mark.parametrize(
    ("make", "length", "shape", "dtype", "highest"),
    [
        (lambda root: dataset.Mnist("train"), 7, (28, 28), "float32", 1),
        (lambda root: dataset.FashionMnist("test"), 3, (28, 28), "float32", 1),
        (lambda root: dataset.Cifar10("train"), 15, (32, 32, 3), "uint8", 255),
        (lambda root: dataset.Cifar100("test"), 3, (32, 32, 3), "uint8", 255),
        (lambda root: dataset.SVHNDigit("extra"), 4, (32, 32, 3), "uint8", 255),
        (lambda root: dataset.Caltech101Silhouettes("val"), 2264, (28, 28), "uint8", 1),
        (lambda root: dataset.BSDS500("train"), 3, (321, 481, 3), "uint8", 255),
        (lambda root: dataset.ILSVRC12(str(root / "imagenet"), "val"), 3, (8, 9, 3), "uint8", 255),
        (lambda root: dataset.TinyImageNet(str(root / "tiny"), "train"), 4, (64, 64, 3), "uint8", 255),
        (lambda root: dataset.Places365Standard(str(root / "places"), "val"), 2, (256, 256, 3), "uint8", 255),
    ],
)
def test_a_data_set_delivers_images_and_labels(root, make, length, shape, dtype, highest):
    df = make(root)
    found = points(df)
    assert len(df) == len(found) == length
    images = np.array([image for image, _ in found])
    assert images.shape == (length, *shape)
    assert images.dtype == dtype
    assert images.min() == 0
    assert images.max() == pytest.approx(highest, abs=4 if highest == 255 else 0)


def test_the_images_of_mnist_are_those_of_the_file(root):
    content = gzip.decompress((root / "mnist_data/t10k-images-idx3-ubyte.gz").read_bytes())
    pixels = np.frombuffer(content[16:], np.uint8).reshape(3, 28, 28)
    labels = gzip.decompress((root / "mnist_data/t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
    found = points(dataset.Mnist("test", shuffle=False))
    np.testing.assert_array_equal(np.rint([image * 255 for image, _ in found]), pixels)
    assert [label for _, label in found] == list(labels)


def test_the_order_is_another_in_each_epoch_where_it_is_shuffled(root):
    df = dataset.Caltech101Silhouettes("val", shuffle=True)
    df.reset_state()
    first, second = ([int(label) for _, label in df] for _ in range(2))
    assert first != second
    assert sorted(first) == sorted(second) == sorted(df.labels)
    df = dataset.Caltech101Silhouettes("val", shuffle=False)
    assert [label for _, label in points(df)] == list(df.labels)


@pytest.mark.parametrize(
    ("make", "is_shuffled"),
    [
        (lambda root, split: dataset.Cifar10(split), True),
        (lambda root, split: dataset.ILSVRC12Files(str(root / "imagenet"), split), True),
        (lambda root, split: dataset.TinyImageNet(str(root / "tiny"), split), True),
        (lambda root, split: dataset.Places365Standard(str(root / "places"), split), True),
    ],
)
def test_training_is_shuffled_by_default(root, make, is_shuffled):
    assert make(root, "train").shuffle
    other = "test" if make(root, "train").__class__ is dataset.Cifar10 else "val"
    assert not make(root, other).shuffle


def test_means_of_cifar_are_those_of_its_images(root):
    images = {split: np.array([image for image, _ in dataset.Cifar10(split).data]) for split in ("train", "test")}
    df = dataset.Cifar10("test")
    both = np.concatenate([*images.values()])
    np.testing.assert_allclose(df.get_per_pixel_mean(), both.mean(0), rtol=1e-6)
    np.testing.assert_allclose(df.get_per_pixel_mean(("test",)), images["test"].mean(0), rtol=1e-6)
    np.testing.assert_allclose(df.get_per_channel_mean(("train",)), images["train"].mean((0, 1, 2)), rtol=1e-6)
    assert df.get_label_names()[:2] == ["airplane", "automobile"]
    with pytest.raises(ValueError, match="Cifar10: expected one of 'train', 'test', not 'val'"):
        df.get_per_pixel_mean(("val",))


def without_training(entry):
    """Leave these files out of an archive of BSDS500, to pack it faster."""
    return None if entry.name.endswith(("/train", "/test")) else entry


def test_archives_are_extracted_where_they_lie(files, empty):
    for directory, source in {"cifar10_data": "cifar-10-batches-py", "bsds500_data": "BSR"}.items():
        (empty / directory).mkdir()
        name = {"BSR": "BSR_bsds500.tgz"}.get(source, "cifar-10-python.tar.gz")
        with tarfile.open(empty / directory / name, "w:gz", compresslevel=1) as archive:
            archive.add(files / directory / source, source, filter=without_training)
    (empty / "ilsvrc_metadata").mkdir()
    shutil.copy(files / "ilsvrc_metadata/caffe_ilsvrc12.tar.gz", empty / "ilsvrc_metadata")
    assert len(dataset.Cifar10("train")) == 15
    assert len(dataset.BSDS500("val")) == 2
    assert dataset.ILSVRCMeta().get_synset_1000()[0] == "n01440764"


def test_the_zeros_of_svhn_are_zeros(root):
    df = dataset.SVHNDigit("train", shuffle=False)
    assert df.Y[0] == 0
    assert df.Y.max() <= 9
    assert dataset.SVHNDigit("train").X is df.X
    np.testing.assert_allclose(dataset.SVHNDigit.get_per_pixel_mean(("train",)), df.X.mean(0))


def test_edges_are_the_share_of_people_who_drew_them_and_upright_images_are_turned(root):
    from scipy.io import loadmat

    df = dataset.BSDS500("train", shuffle=False)
    upright = loadmat(root / "bsds500_data/BSR/BSDS500/data/groundTruth/train/1.mat")["groundTruth"][0]
    drawn = [person["Boundaries"][0, 0] for person in upright]
    np.testing.assert_array_equal(df.label[1], np.mean(drawn, axis=0).T)
    assert set(np.unique(df.label)) <= {0, 0.25, 0.5, 0.75, 1}


def test_the_lists_of_imagenet(root):
    meta = dataset.ILSVRCMeta()
    assert meta.get_synset_words_1000()[7] == "n01440771 word 7, other"
    assert meta.get_image_list("train")[2] == ("n01440771/n01440771_3.JPEG", 7)
    assert meta.get_image_list("val")[0] == ("ILSVRC2012_val_00000001.JPEG", 7)
    assert meta.get_image_list("val", "train")[0] == ("n01440771/ILSVRC2012_val_00000001.JPEG", 7)
    with pytest.raises(ValueError, match="ILSVRCMeta: expected one of 'train', 'val', 'test', not 'foo'"):
        meta.get_image_list("foo")
    with pytest.raises(ValueError, match="ILSVRCMeta: expected one of 'original', 'train', not 'val'"):
        meta.get_image_list("val", "val")


def test_the_structure_of_a_directory_of_imagenet_is_found(root, tmp_path):
    assert dataset.ILSVRCMeta.guess_dir_structure(str(root / "imagenet/val")) == "original"
    assert dataset.ILSVRCMeta.guess_dir_structure(str(root / "imagenet/classes")) == "train"
    (tmp_path / "val").symlink_to(root / "imagenet/classes")
    by_class = points(dataset.ILSVRC12(str(tmp_path), "val"))
    assert [label for _, label in by_class] == [7, 0, 7]
    with pytest.raises(FileNotFoundError, match=r"n01440771/ILSVRC2012_val_00000001.JPEG is missing"):
        dataset.ILSVRC12Files(str(root / "imagenet"), "val", dir_structure="train")


def test_the_mean_of_imagenet_is_read_without_caffe(root):
    content = (root / "ilsvrc_metadata/imagenet_mean.binaryproto").read_bytes()
    expected = np.frombuffer(content[14:], "<f4").reshape(3, 256, 256).transpose(1, 2, 0)
    meta = dataset.ILSVRCMeta()
    np.testing.assert_array_equal(meta.get_per_pixel_mean(), expected)
    np.testing.assert_array_equal(meta.get_per_pixel_mean((100, 50)), cv2.resize(expected, (50, 100)))


def test_boxes_of_imagenet_are_those_of_the_files(root, tmp_path):
    names = dataset.ILSVRCMeta().get_image_list("train")
    published.write_boxes(tmp_path, {names[1][0]: (10, 20, 110, 220)})
    boxes = dataset.ILSVRC12.get_training_bbox(str(tmp_path), names)
    assert [None if box is None else box.tolist() for box in boxes] == [None, [10, 20, 110, 220], None, None]
    assert boxes[1].dtype == np.float32


def test_damaged_boxes_are_an_error_that_names_the_file(root, tmp_path):
    published.write_boxes(tmp_path, {"n0/a.JPEG": (1, 2, 3, 4)})
    path = tmp_path / "n0/a.xml"
    for content in ("<annotation></annotation>", "<annotation><object>", path.read_text().replace("xmax", "x")):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"n0/a.xml cannot be read .*ILSVRC2012_bbox"):
            dataset.ILSVRC12.get_training_bbox(str(tmp_path), [("n0/a.JPEG", 0)])


def test_the_classes_of_tiny_imagenet_are_numbered_as_in_its_list(root):
    train = dataset.TinyImageNet(str(root / "tiny"), "train", shuffle=False)
    names = [os.path.basename(path) for path, _ in train.imglist]
    assert names == ["n00000050_0.JPEG", "n00000050_1.JPEG", "n00000003_0.JPEG", "n00000003_1.JPEG"]
    assert [label for _, label in train.imglist] == [149, 149, 196, 196]
    assert [label for _, label in points(dataset.TinyImageNet(str(root / "tiny"), "val"))] == [149, 196, 0]


def test_the_classes_of_places_are_numbered_by_name(root):
    df = dataset.Places365Standard(str(root / "places"), "train", shuffle=False)
    assert df.get_label_names() == ["airfield", "forest", "zen_garden"]
    assert [label for _, label in points(df)] == [2, 0, 0, 1]


@pytest.mark.parametrize(
    ("make", "file", "source"),
    [
        (lambda root: dataset.Mnist("train"), "mnist_data/train-images-idx3-ubyte.gz", "http://yann"),
        (lambda root: dataset.FashionMnist("test"), "fashion_mnist_data/t10k-images-idx3-ubyte.gz", "http://fashion"),
        (lambda root: dataset.Cifar10("train"), "cifar10_data/cifar-10-python.tar.gz", "https://www.cs.toronto"),
        (lambda root: dataset.Cifar100("train"), "cifar100_data/cifar-100-python.tar.gz", "https://www.cs.toronto"),
        (lambda root: dataset.SVHNDigit("test"), "svhn_data/test_32x32.mat", "http://ufldl"),
        (lambda root: dataset.Caltech101Silhouettes("val"), "caltech101_silhouettes_28_split1.mat", "https://people"),
        (lambda root: dataset.BSDS500("val"), "bsds500_data/BSR_bsds500.tgz", "http://www.eecs"),
        (lambda root: dataset.ILSVRCMeta(), "ilsvrc_metadata/caffe_ilsvrc12.tar.gz", "http://dl.caffe"),
        (lambda root: dataset.ILSVRC12(f"{root}/x", "val"), "x/val", "https://image-net"),
        (lambda root: dataset.TinyImageNet(f"{root}/x", "val"), "x/wnids.txt", "http://cs231n"),
        (lambda root: dataset.Places365Standard(f"{root}/x", "val"), "x/val.txt", "http://places2"),
    ],
)
def test_without_its_files_a_data_set_says_what_to_get_and_writes_nothing(empty, make, file, source):
    with pytest.raises(FileNotFoundError, match=f"{file} is missing, and nothing is downloaded .*{source}"):
        make(empty)
    assert not [*empty.iterdir()]


@pytest.mark.parametrize(
    "make",
    [
        dataset.Mnist,
        dataset.Cifar100,
        dataset.SVHNDigit,
        dataset.Caltech101Silhouettes,
        dataset.BSDS500,
        lambda name: dataset.ILSVRC12Files("x", name),
        lambda name: dataset.TinyImageNet("x", name),
        lambda name: dataset.Places365Standard("x", name),
    ],
)
def test_a_part_that_a_data_set_does_not_have_is_an_error(make):
    with pytest.raises(ValueError, match=r"expected one of 'train', .*, not 'training'"):
        make("training")


def test_cifar_has_ten_or_a_hundred_classes():
    with pytest.raises(ValueError, match="CifarBase: expected one of 10, 100, not 20"):
        dataset.CifarBase("train", cifar_classnum=20)


def cut(content):
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    ("file", "damage", "make"),
    [
        ("mnist_data/train-images-idx3-ubyte.gz", cut, lambda root: dataset.Mnist("train")),
        ("mnist_data/train-labels-idx1-ubyte.gz", lambda _: b"<html>", lambda root: dataset.Mnist("train")),
        (
            "mnist_data/t10k-labels-idx1-ubyte.gz",
            lambda _: gzip.compress(b"x" * 99),
            lambda root: dataset.Mnist("test"),
        ),
        ("cifar10_data/cifar-10-batches-py/data_batch_3", cut, lambda root: dataset.Cifar10("train")),
        ("cifar100_data/cifar-100-python/meta", lambda _: b"", lambda root: dataset.Cifar100("test")),
        ("svhn_data/test_32x32.mat", cut, lambda root: dataset.SVHNDigit("test")),
        (
            "caltech101_data/caltech101_silhouettes_28_split1.mat",
            cut,
            lambda root: dataset.Caltech101Silhouettes("val"),
        ),
        ("bsds500_data/BSR/BSDS500/data/groundTruth/val/1.mat", cut, lambda root: dataset.BSDS500("val")),
        (
            "ilsvrc_metadata/val.txt",
            lambda _: b"a b c\n",
            lambda root: dataset.ILSVRC12Files(f"{root}/imagenet", "val"),
        ),
        (
            "ilsvrc_metadata/imagenet_mean.binaryproto",
            cut,
            lambda root: dataset.ILSVRCMeta(f"{root}/ilsvrc_metadata").get_per_pixel_mean(),
        ),
        ("imagenet/val/ILSVRC2012_val_00000002.JPEG", cut, None),
        ("tiny/val/val_annotations.txt", lambda _: b"a", lambda root: dataset.TinyImageNet(f"{root}/tiny", "val")),
        ("places/val.txt", lambda _: b"1.jpg\n", lambda root: dataset.Places365Standard(f"{root}/places", "val")),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(root, monkeypatch, file, damage, make):
    monkeypatch.setattr(dataset.SVHNDigit, "_Cache", {})
    path = root / file
    content = path.read_bytes()
    if make is None:
        damage, make = (lambda _: b"no image"), lambda root: points(dataset.ILSVRC12(f"{root}/imagenet", "val"))
    path.write_bytes(damage(content))
    try:
        with pytest.raises(ValueError, match=f"{file}[: ].*cannot be read .*it may be damaged"):
            make(root)
    finally:
        path.write_bytes(content)


def test_labels_that_do_not_fit_the_images_are_an_error(empty):
    published.write_mnist(np.random.RandomState(0), empty / "a")
    published.write_mnist(np.random.RandomState(0), empty / "b", train=8)
    shutil.copy(empty / "b/train-labels-idx1-ubyte.gz", empty / "a")
    with pytest.raises(ValueError, match=r"Mnist: expected arrays of equal length; these have \[7, 8\] rows"):
        dataset.Mnist("train", dir=str(empty / "a"))


def test_an_image_that_is_gone_is_an_error_that_names_it(root, tmp_path):
    shutil.copytree(root / "tiny/val", tmp_path / "val")
    shutil.copy(root / "tiny/wnids.txt", tmp_path)
    (tmp_path / "val/images/val_1.JPEG").unlink()
    with pytest.raises(ValueError, match=r"val_1.JPEG cannot be read as an image"):
        points(dataset.TinyImageNet(str(tmp_path), "val"))


@pytest.mark.parametrize(
    ("module", "match", "make"),
    [
        ("scipy.io", "SVHNDigit needs scipy.io: .*datasets", lambda root: dataset.SVHNDigit("test")),
        (
            "cv2",
            "cv2.* needs cv2: .*images",
            lambda root: points(dataset.TinyImageNet(f"{root}/tiny", "val")),
        ),
        (
            "cv2",
            "cv2.resize needs cv2: .*images",
            lambda root: dataset.ILSVRCMeta().get_per_pixel_mean((9, 9)),
        ),
    ],
)
def test_a_package_that_is_missing_is_named(root, monkeypatch, module, match, make):
    monkeypatch.setattr(dataset.SVHNDigit, "_Cache", {})
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=match):
        make(root)
