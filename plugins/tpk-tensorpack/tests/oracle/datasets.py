"""Datapoints of the data set readers, from small files in the published formats.

A tensorpack script: `python datasets.py OUT.npz` with tensorpack, `python -m tpk_tensorpack datasets.py OUT.npz` with
this package; `TENSORPACK_DATASET` is the directory of the files.
"""

import os
import sys

import numpy as np
from tensorpack.dataflow import dataset
from tensorpack.utils.utils import fix_rng_seed

root = os.environ["TENSORPACK_DATASET"]
fix_rng_seed(3)
results = {}


def keep(name, df, epochs=2, limit=100):
    """Record the datapoints, their types, and the length."""
    df.reset_state()
    results[f"{name} length"] = len(df)
    for epoch in range(epochs):
        points = []
        for number, point in enumerate(df):
            if number == limit:
                break
            points.append(point)
        results[f"{name} types"] = str([[type(part).__name__ for part in point] for point in points[:1]])
        for part in range(len(points[0])):
            results[f"{name} {epoch} {part}"] = np.array([point[part] for point in points])


for split in ("train", "test"):
    keep(f"mnist {split}", dataset.Mnist(split))
    keep(f"fashion {split}", dataset.FashionMnist(split, shuffle=False))
results["mnist images"] = dataset.Mnist("test").images
results["fashion names"] = dataset.FashionMnist("test").get_label_names()
for name, cifar in {"cifar10": dataset.Cifar10, "cifar100": dataset.Cifar100}.items():
    keep(f"{name} train", cifar("train"))
    test = cifar("test")
    keep(f"{name} test", test)
    results[f"{name} names"] = test.get_label_names()
    results[f"{name} pixels"] = test.get_per_pixel_mean(("test",))
    results[f"{name} channels"] = test.get_per_channel_mean(["test"])
for split in ("train", "test", "extra"):
    keep(f"svhn {split}", dataset.SVHNDigit(split))
results["svhn mean"] = dataset.SVHNDigit.get_per_pixel_mean()
results["svhn mean of one"] = dataset.SVHNDigit.get_per_pixel_mean(("test",))
for split in ("train", "test", "val"):
    keep(f"caltech {split}", dataset.Caltech101Silhouettes(split))
    bsds = dataset.BSDS500(split, shuffle=False)
    order = np.argsort(bsds.data.sum((1, 2, 3)))
    results[f"bsds {split} images"], results[f"bsds {split} labels"] = bsds.data[order], bsds.label[order]
keep("bsds", dataset.BSDS500("train"))
del results["bsds 0 0"], results["bsds 0 1"], results["bsds 1 0"], results["bsds 1 1"]

meta = dataset.ILSVRCMeta()
results["synsets"] = str(meta.get_synset_1000())
results["words"] = str(meta.get_synset_words_1000())
results["mean"] = meta.get_per_pixel_mean()
results["mean of another size"] = meta.get_per_pixel_mean((100, 50))
for split in ("train", "val", "test"):
    results[f"list {split}"] = str(meta.get_image_list(split))
    results[f"list {split} by class"] = str(meta.get_image_list(split, dir_structure="train"))
    results[f"structure {split}"] = meta.guess_dir_structure(f"{root}/imagenet/{split}")
    keep(f"files {split}", dataset.ILSVRC12Files(f"{root}/imagenet", split, shuffle=split != "train"))
    keep(f"imagenet {split}", dataset.ILSVRC12(f"{root}/imagenet", split))
for split in ("train", "val"):
    keep(f"places {split}", dataset.Places365Standard(f"{root}/places", split))
    results[f"places {split} names"] = dataset.Places365Standard(f"{root}/places", split).get_label_names()
    tiny = dataset.TinyImageNet(f"{root}/tiny", split, shuffle=False)
    results[f"tiny {split} files"] = str(sorted(tiny.imglist))
keep("tiny val", dataset.TinyImageNet(f"{root}/tiny", "val", shuffle=True))
np.savez(sys.argv[1], **results)
