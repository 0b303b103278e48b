"""Seeded data flows, exchanged files, and data flows sent over ZeroMQ.

A tensorpack script with several commands: `flows OUT.npz` runs flows, `write DIR` and `read DIR OUT.npz` exchange
files, and `send ADDRESS` and `receive ADDRESS OUT.npz` use ZeroMQ.
"""

import sys

import numpy as np
from tensorpack.dataflow import (
    BatchData,
    BatchDataByShape,
    CacheData,
    CaffeLMDB,
    ConcatData,
    DataFromList,
    FakeData,
    FixedSizeData,
    HDF5Data,
    HDF5Serializer,
    JoinData,
    LMDBData,
    LMDBDataDecoder,
    LMDBSerializer,
    LocallyShuffleData,
    MapData,
    MapDataComponent,
    MultiProcessRunnerZMQ,
    MultiThreadMapData,
    NumpySerializer,
    RandomChooseData,
    RandomMixData,
    RemoteDataZMQ,
    RepeatedData,
    RepeatedDataPoint,
    SelectComponent,
    SVMLightData,
    TFRecordSerializer,
    send_dataflow_zmq,
)
from tensorpack.utils.utils import fix_rng_seed

points = [[number, float(number), np.arange(number % 3 + 1, dtype="uint8")] for number in range(12)]
pairs = [[np.arange(3, dtype="float32") + number, number] for number in range(6)]


def source(shuffle=False):
    return DataFromList(points, shuffle=shuffle)


FLOWS = {
    "shuffled": lambda: source(True),
    "batches": lambda: BatchData(DataFromList(pairs), 4, remainder=True),
    "lists": lambda: BatchData(source(), 4, use_list=True),
    "by shape": lambda: BatchDataByShape(source(), 2, idx=2),
    "fixed size": lambda: FixedSizeData(source(True), 5),
    "mapped": lambda: MapData(source(), lambda point: [point[0] + 1] if point[0] % 2 else None),
    "mapped component": lambda: MapDataComponent(source(True), lambda value: value * 2 or None, 1),
    "repeated": lambda: RepeatedData(source(True), 2),
    "repeated points": lambda: RepeatedDataPoint(source(True), 2),
    "chosen": lambda: RandomChooseData([source(), DataFromList(pairs)]),
    "chosen unlike": lambda: RandomChooseData([(source(), 0.2), (DataFromList(pairs), 0.8)]),
    "mixed": lambda: RandomMixData([source(True), DataFromList(pairs)]),
    "joined": lambda: JoinData([DataFromList(pairs), SelectComponent(source(True), [1, 0])]),
    "concatenated": lambda: ConcatData([DataFromList(pairs), source()]),
    "locally shuffled": lambda: LocallyShuffleData(source(), 5, num_reuse=2, shuffle_interval=3),
    "cached": lambda: CacheData(source(True), shuffle=True),
    "fake": lambda: FakeData([[2, 3], [2]], 4, random=True, dtype=["float32", "int64"], domain=[(-1, 1), (0, 9)]),
    "fake fixed": lambda: FakeData([[2]], 3, random=False),
    # Several threads deliver datapoints in any order. tensorpack's MultiProcessMapData is left out: it hangs at times.
    "threads": lambda: MultiThreadMapData(source(), 2, lambda point: [point[0] * 3], buffer_size=4, strict=True),
    "worker": lambda: MultiProcessRunnerZMQ(source(), 1),
}


def keep(results, name, flow, passes=2, most=30):
    try:
        results[f"{name}: length"] = len(flow)
    except (NotImplementedError, TypeError):
        results[f"{name}: length"] = -1
    flow.reset_state()
    for number in range(passes):
        count = 0
        rows = []
        for point in flow:
            rows.append(point.values() if isinstance(point, dict) else point)
            count += 1
            if count == most:
                break
        if name == "threads":
            rows = sorted(rows, key=lambda row: row[0])
        for index, row in enumerate(rows):
            for component, value in enumerate(row):
                results[f"{name}, {number}, {index}, {component}"] = (
                    str(value) if isinstance(value, list) else np.asarray(value)
                )
                kind = type(value) if isinstance(value, (list, tuple)) else getattr(value, "dtype", type(value))
                results[f"{name}, {number}, {index}, {component}: type"] = str(kind)
        results[f"{name}, {number}: count"] = count


def run_flows(path):
    results = {}
    for name, make in FLOWS.items():
        fix_rng_seed(7)
        keep(results, name, make(), passes=1 if name in ("threads", "locally shuffled") else 2)
    np.savez(path, **results)


def write(directory):
    flow = DataFromList(pairs, shuffle=False)
    LMDBSerializer.save(flow, f"{directory}/points.lmdb")
    NumpySerializer.save(flow, f"{directory}/points.npz")
    TFRecordSerializer.save(flow, f"{directory}/points.tfrecord")
    HDF5Serializer.save(flow, f"{directory}/points.h5", ["x", "y"])


def flows_of(directory, shuffle):
    return {
        "LMDB": lambda: LMDBSerializer.load(f"{directory}/points.lmdb", shuffle=shuffle),
        "NumPy": lambda: NumpySerializer.load(f"{directory}/points.npz", shuffle=shuffle),
        "HDF5": lambda: HDF5Serializer.load(f"{directory}/points.h5", ["x", "y"], shuffle=shuffle),
        "HDF5Data": lambda: HDF5Data(f"{directory}/points.h5", ["y"], shuffle=shuffle),
        "SVMLight": lambda: SVMLightData(f"{directory}/../points.svm", shuffle=shuffle),
        "Caffe": lambda: CaffeLMDB(f"{directory}/../caffe-{shuffle}", shuffle=shuffle),
        "decoded": lambda: LMDBDataDecoder(
            LMDBData(f"{directory}/../raw-{shuffle}", shuffle=shuffle), lambda k, v: [len(k), len(v)] if v else None
        ),
    }


def read(directory, path):
    results = {}
    for shuffle in (False, True):
        for name, make in flows_of(directory, shuffle).items():
            # tensorpack opens an LMDB only once per process.
            if name != "LMDB" or shuffle:
                fix_rng_seed(7)
                keep(results, f"{name}, {shuffle}", make())
    keep(results, "TFRecord", TFRecordSerializer.load(f"{directory}/points.tfrecord", len(pairs)), passes=1)
    np.savez(path, **results)


def receive(address, path):
    results = {}
    flow = RemoteDataZMQ(address)
    flow.reset_state()
    for index, (array, number) in enumerate(flow):
        results[f"{index} array"], results[f"{index} number"] = array, number
        if index == 11:
            break
    np.savez(path, **results)


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    if task == "send":
        send_dataflow_zmq(DataFromList(pairs, shuffle=False), arguments[0])
    else:
        {"flows": run_flows, "write": write, "read": read, "receive": receive}[task](*arguments)
