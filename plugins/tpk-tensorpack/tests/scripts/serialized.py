"""Serialize data to a file once and read it: LMDB, HDF5, TFRecord and NumPy's format."""

import os
import shutil

import cv2
import numpy as np
from tensorpack.dataflow import (
    BatchData,
    DataFlow,
    HDF5Data,
    LMDBData,
    LMDBSerializer,
    MapData,
    MapDataComponent,
    NumpySerializer,
    TFRecordSerializer,
)
from tensorpack.dataflow.serialize import HDF5Serializer
from tensorpack.utils.serialize import dumps, loads


class Encoded(DataFlow):
    """JPEG files as byte arrays, with labels."""

    def __len__(self):
        return 10

    def __iter__(self):
        rng = np.random.RandomState(1)
        for n in range(10):
            image = cv2.resize(rng.randint(256, size=(4, 4, 3)).astype("uint8"), (24, 24))
            done, jpeg = cv2.imencode(".jpg", image)
            assert done
            yield [jpeg.reshape(-1), n]


def decoded(ds):
    ds = MapDataComponent(ds, lambda jpeg: cv2.imdecode(np.asarray(jpeg), cv2.IMREAD_COLOR), 0)
    ds = BatchData(ds, 5)
    ds.reset_state()
    return list(ds)


if __name__ == "__main__":
    results = {}
    expected = decoded(Encoded())

    shutil.rmtree("prepared", ignore_errors=True)
    os.makedirs("prepared")
    LMDBSerializer.save(Encoded(), "prepared/data.lmdb")
    TFRecordSerializer.save(Encoded(), "prepared/data.tfrecords")
    NumpySerializer.save(Encoded(), "prepared/data.npz")
    ds = MapData(Encoded(), lambda dp: [np.float32(dp[0][:20]), np.int64(dp[1])])
    ds.reset_state()
    HDF5Serializer.save(ds, "prepared/data.h5", ["first_bytes", "label"])

    loaded = {
        "lmdb": LMDBSerializer.load("prepared/data.lmdb", shuffle=False),
        "tfrecords": TFRecordSerializer.load("prepared/data.tfrecords", size=10),
        "npz": MapData(NumpySerializer.load("prepared/data.npz", shuffle=False), list),
    }
    for name, ds in loaded.items():
        assert len(ds) == 10, name
        for (images, labels), (same_images, same_labels) in zip(decoded(ds), expected, strict=True):
            np.testing.assert_array_equal(images, same_images, err_msg=name)
            np.testing.assert_array_equal(labels, same_labels, err_msg=name)
            results[name + "_labels"] = labels

    # LMDB cannot open a file twice in one process.
    shutil.copy("prepared/data.lmdb", "prepared/raw.lmdb")
    shutil.copy("prepared/data.lmdb", "prepared/shuffled.lmdb")
    raw = LMDBData("prepared/raw.lmdb", shuffle=False)
    raw.reset_state()
    points = [loads(value) for _, value in raw]
    assert len(points) == 10
    assert loads(dumps({"a": np.arange(3)}))["a"].tolist() == [0, 1, 2]

    shuffled = LMDBSerializer.load("prepared/shuffled.lmdb", shuffle=True)
    shuffled.reset_state()
    assert sorted(int(label) for _, label in shuffled) == list(range(10))

    h5 = HDF5Data("prepared/data.h5", ["first_bytes", "label"], shuffle=False)
    h5.reset_state()
    results["h5_bytes"] = np.array([first for first, _ in h5])
    np.savez("serialized.npz", images=np.concatenate([images for images, _ in expected]), **results)
