"""Data flows that differ from tpk's; `nox -s port_oracle` also compares the others with tensorpack's."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
from itertools import islice

import numpy as np
import pytest
from tpk_tensorpack import dataflow
from tpk_tensorpack.dataflow import (
    BatchData,
    CacheData,
    CaffeLMDB,
    ConcatData,
    DataFlow,
    DataFromList,
    FakeData,
    HDF5Data,
    HDF5Serializer,
    JoinData,
    LMDBData,
    LMDBDataDecoder,
    LMDBSerializer,
    LocallyShuffleData,
    MapData,
    MultiProcessMapAndBatchData,
    MultiProcessMapData,
    MultiProcessRunner,
    MultiProcessRunnerZMQ,
    MultiThreadMapData,
    MultiThreadRunner,
    NumpySerializer,
    PrintData,
    RandomChooseData,
    RandomMixData,
    RemoteDataZMQ,
    RNGDataFlow,
    SVMLightData,
    TestDataSpeed,
    TFRecordSerializer,
    send_dataflow_zmq,
)
from tpk_tensorpack.dataflow.base import DataFlowReentrantGuard
from tpk_tensorpack.dataflow.raw import ArrayRows
from tpk_tensorpack.utils import utils
from tpk_tensorpack.utils.utils import fix_rng_seed

from tpk.errors import ConfigError, InputError

POINTS = [[np.arange(3, dtype=np.float32) + number, number] for number in range(6)]


@pytest.fixture
def restored_seed(monkeypatch):
    """Reset the seed that a test has fixed."""
    monkeypatch.setattr(utils, "_seed", None)


def numbers(flow, most=None):
    flow.reset_state()
    found = []
    for point in flow:
        found.append(int(point[-1]))
        if len(found) == most:
            break
    return found


def source():
    return DataFromList(POINTS, shuffle=False)


def drawn():
    class Drawn(RNGDataFlow):
        """A custom flow, defined in a function so that it is sent to workers by value."""

        def __len__(self):
            return 4

        def __iter__(self):
            for _ in range(4):
                yield [os.getpid(), self.rng.randint(1 << 30)]

    return Drawn()


class Older(DataFlow):
    """A custom flow in the style of older versions."""

    def get_data(self):
        yield from ([number] for number in range(3))

    def size(self):
        return 3


@pytest.mark.parametrize(
    "make", [lambda flow: MultiProcessRunnerZMQ(flow, 2), lambda flow: MultiProcessRunner(flow, 8, 2)]
)
def test_each_worker_runs_the_whole_flow(make):
    runner = make(drawn())
    runner.reset_state()
    assert len(runner) == 4
    points = [point for _ in range(2) for point in runner]
    runner.close()
    assert len(points) == 8
    by_worker = [{number for pid, number in points if pid == worker} for worker in {pid for pid, _ in points}]
    assert len(by_worker) == 2
    assert os.getpid() not in {pid for pid, _ in points}
    assert not by_worker[0] & by_worker[1]


def test_each_thread_runs_a_flow_of_its_own():
    runner = MultiThreadRunner(source, 4, 2)
    runner.reset_state()
    points = numbers(runner, 12)
    assert set(points) <= set(range(6))
    runner.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda func: MultiThreadMapData(source(), 2, func, buffer_size=4, strict=True),
        lambda func: MultiProcessMapData(source(), num_proc=2, map_func=func, strict=True),
    ],
)
def test_a_pass_of_a_strict_map_has_each_datapoint_once(make):
    flow = make(lambda point: [point[1] * 2] if point[1] else None)
    for _ in range(2):
        assert numbers(flow) == [2, 4, 6, 8, 10]
    assert len(flow) == 6
    flow.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda func: MultiThreadMapData(source(), 2, func, buffer_size=4),
        lambda func: MultiProcessMapData(source(), 2, func, buffer_size=4),
    ],
)
def test_another_map_goes_on_with_the_next_pass(make):
    flow = make(lambda point: [point[1] * 2] if point[1] else None)
    assert numbers(flow, 12) == [2, 4, 6, 8, 10, 2, 4, 6, 8, 10, 2, 4]
    assert len(flow) == 6
    assert [point[1] for point in flow.ds] == list(range(6))
    flow.close()


def test_batches_of_what_workers_have_mapped():
    flow = MultiProcessMapAndBatchData(source(), 2, lambda point: [point[1] * 2] if point[1] else None, 3, 12)
    flow.reset_state()
    # Of 0, 1, 2 and 0, 1, 2 each, the first worker has dropped one; it keeps the rest for the next batch.
    batches = [batch for (batch,), _ in zip(flow, range(4), strict=False)]
    assert [batch.tolist() for batch in batches] == [[6, 8, 10], [2, 4, 2], [6, 8, 10], [4, 2, 4]]
    assert batches[0].dtype == np.int32
    assert len(flow) == 2
    flow.close()


def test_a_worker_that_dies_is_told_of():
    flow = MultiProcessRunnerZMQ(MapData(source(), lambda point: os.kill(os.getpid(), signal.SIGKILL)), 1)
    with pytest.raises(InputError, match=r"worker 1 of 1 of MultiProcessRunnerZMQ .* died: killed by signal 9"):
        numbers(flow)


def test_a_resumed_run_goes_on_exactly_in_each_worker():
    flow = MultiProcessRunnerZMQ(BatchData(DataFromList(POINTS), 2), 2)
    flow.reset_state()
    iterator = iter(flow)
    next(iterator)
    state = json.loads(json.dumps(flow.state_dict()))
    expected = [batch[1].tolist() for each in (iterator, flow, flow) for batch in each]
    flow.close()
    resumed = MultiProcessRunnerZMQ(BatchData(DataFromList(POINTS), 2), 2)
    resumed.load_state_dict(state)
    assert [batch[1].tolist() for _ in range(3) for batch in resumed] == expected
    resumed.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataFromList(POINTS),
        lambda: FakeData([[2]], 6),
        lambda: ArrayRows([np.arange(6), np.arange(12).reshape(6, 2)], shuffle=True),
        lambda: RandomChooseData([DataFromList(POINTS), FakeData([[3], []], 9)]),
        lambda: RandomMixData([DataFromList(POINTS), FakeData([[3], []], 4)]),
        lambda: CacheData(DataFromList(POINTS), shuffle=True),
    ],
)
@pytest.mark.parametrize("delivered", [2, 9, 20])
def test_what_is_drawn_at_random_resumes_exactly(make, delivered):
    def endless(flow):
        while True:
            yield from flow

    flow, resumed = make(), make()
    flow.reset_state()
    resumed.reset_state()
    datapoints = endless(flow)
    list(islice(datapoints, delivered))
    state = json.loads(json.dumps(flow.state_dict()))
    expected = list(islice(datapoints, 8))
    resumed.load_state_dict(state)
    for datapoint, other in zip(islice(endless(resumed), 8), expected, strict=True):
        for value, expected_value in zip(datapoint, other, strict=True):
            np.testing.assert_array_equal(value, expected_value)


def test_a_local_shuffle_loses_its_buffer_when_it_is_resumed():
    flow, resumed = (
        LocallyShuffleData(DataFromList([[number] for number in range(60)], shuffle=False), 4) for _ in range(2)
    )
    assert set(numbers(flow, 5)) <= set(range(8))
    resumed.load_state_dict(json.loads(json.dumps(flow.state_dict())))
    # Nine had been read, of which four were in the buffer.
    assert next(iter(resumed))[0] in range(9, 13)


def test_a_flow_may_be_joined_with_itself():
    flow = source()
    joined = JoinData([flow, MapData(flow, lambda point: [point[1] * 2])])
    assert [(point[1], point[2]) for point in joined] == [(number, number * 2) for number in range(6)]
    assert numbers(ConcatData([flow, flow])) == [*range(6), *range(6)]


def test_workers_draw_from_a_fixed_seed(restored_seed):
    fix_rng_seed(7)
    flow = drawn()
    flow.reset_state()
    expected = [number for _, number in flow]
    runner = MultiProcessRunnerZMQ(drawn(), 2)
    runner.reset_state()
    points = [number for _, number in runner] + [number for _, number in runner]
    runner.close()
    assert points[::2] == expected  # The first worker draws the same as a run without workers,
    assert not set(points[1::2]) & set(expected)  # and the other one does not repeat it.


def test_functions_get_copies_of_the_lists_that_pass_by():
    def change(point):
        point[1] += 1
        return point

    flow = MapData(source(), change)
    assert numbers(flow) == numbers(flow) == [1, 2, 3, 4, 5, 6]


def test_batches_of_workers_lie_in_shared_memory():
    runner = MultiProcessRunnerZMQ(BatchData(DataFromList(POINTS), 2), 1)
    given = []
    runner._share(0).allocate_with(given.append)
    assert runner.ds._allocate == given.append


def test_what_a_worker_raises_is_raised_here():
    def fail(point):
        raise ValueError(f"no {point[1]}")

    flow = MultiProcessRunnerZMQ(MapData(source(), fail), 1)
    with pytest.raises(ValueError, match="no 0"):
        numbers(flow)


@pytest.mark.parametrize("kind", [MultiThreadMapData, MultiProcessMapData])
def test_a_map_needs_a_function_and_workers(kind):
    with pytest.raises(ConfigError, match="takes the number of workers and map_func="):
        kind(source())


@pytest.mark.parametrize("name", ["PlasmaPutData", "PlasmaGetData"])
def test_plasma_is_gone(name):
    from tpk_tensorpack.dataflow import parallel

    with pytest.raises(ImportError, match="Arrow has dropped plasma"):
        getattr(parallel, name)


def test_a_guard_lets_one_iteration_in_at_a_time():
    guard = DataFlowReentrantGuard()
    for _ in range(2):
        with guard, pytest.raises(RuntimeError, match="supports one iteration at a time"):
            guard.__enter__()


def test_flows_of_the_time_of_get_data():
    assert list(Older()) == list(Older().get_data()) == [[0], [1], [2]]
    assert Older().size() == 3
    assert [point[1] for point in source().get_data()] == list(range(6))
    assert source().size() == 6
    assert dataflow.PrefetchDataZMQ is MultiProcessRunnerZMQ


def test_python_numbers_become_32_bits():
    ((integers, floats, flags),) = BatchData(DataFromList([[1, 2.5, True], [2, 3.5, False]], shuffle=False), 2)
    assert (integers.dtype, floats.dtype, flags.dtype) == (np.int32, np.float32, np.int32)
    with pytest.raises(InputError, match="do not fit into int32"):
        list(BatchData(DataFromList([[1], ["a"]], shuffle=False), 2))


def test_contents_are_described(caplog):
    caplog.set_level(logging.INFO, "tpk_tensorpack")
    nested = [[np.arange(6.0).reshape(2, 3), "text", [1, [2, [3, [4]]], 5, 6], 2.5]]
    numbers(PrintData(DataFromList([[*nested[0], 7]], shuffle=False), name="train", max_list=2))
    for line in (
        "Contents of DataFlow (train):",
        "datapoint 0/1 with 5 components consists of\n  0: array of float64, shape (2, 3), from 0 to 5\n",
        "  1: str of length 4: 'text'\n  2: list of 4\n    0: int: 1\n    1: list of 2\n      0: int: 2\n",
        "    … 2 more\n",
        "  3: float: 2.5\n  4: int: 7",
    ):
        assert line in caplog.text


def test_speed_is_measured_before_the_first_pass(capfd):
    flow = TestDataSpeed(source(), size=4, warmup=2)
    assert numbers(flow) == list(range(6))
    assert "speed" in capfd.readouterr().err


SERIALIZERS = {
    "lmdb": (LMDBSerializer.save, lambda path, shuffle: LMDBSerializer.load(path, shuffle=shuffle)),
    "npz": (NumpySerializer.save, lambda path, shuffle: NumpySerializer.load(path, shuffle=shuffle)),
    "tfrecord": (TFRecordSerializer.save, lambda path, shuffle: TFRecordSerializer.load(path, 6)),
    "h5": (
        lambda flow, path: HDF5Serializer.save(flow, path, ["x", "y"]),
        lambda path, shuffle: HDF5Serializer.load(path, ["x", "y"], shuffle=shuffle),
    ),
}


@pytest.mark.parametrize("name", SERIALIZERS)
def test_what_was_saved_is_loaded(name, tmp_path):
    save, load = SERIALIZERS[name]
    path = f"{tmp_path}/points.{name}"
    save(source(), path)
    flow = load(path, False)
    assert len(flow) == 6
    for _ in range(2):
        assert numbers(flow) == list(range(6))
    assert sorted(numbers(load(path, True))) == list(range(6))
    np.testing.assert_array_equal(next(iter(load(path, False)))[0], POINTS[0][0])
    with pytest.raises(ConfigError, match="exists already"):
        save(source(), path)


@pytest.mark.parametrize("name", SERIALIZERS)
@pytest.mark.parametrize("content", [None, b"no such file, but another one" * 9])
def test_a_file_that_is_none_is_told(name, content, tmp_path):
    path = tmp_path / f"points.{name}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"there is no file|damaged"):
        numbers(SERIALIZERS[name][1](str(path), False))


def test_an_lmdb_travels_to_workers(tmp_path):
    LMDBSerializer.save(source(), f"{tmp_path}/points.lmdb")
    runner = MultiProcessRunnerZMQ(LMDBSerializer.load(f"{tmp_path}/points.lmdb"), 1)
    assert sorted(numbers(runner)) == list(range(6))
    runner.close()


@pytest.fixture
def lmdb_path(tmp_path):
    import lmdb
    from tpk_tensorpack.utils.loadcaffe import get_caffe_pb

    with lmdb.open(str(tmp_path / "caffe")) as environment, environment.begin(write=True) as transaction:
        for number in range(3):
            datum = get_caffe_pb().Datum(channels=2, height=3, width=4, label=number, data=bytes(range(24)))
            transaction.put(b"%08d" % number, datum.SerializeToString())
    return str(tmp_path / "caffe")


def test_images_of_caffe(lmdb_path):
    flow = CaffeLMDB(lmdb_path, shuffle=False)
    assert numbers(flow) == [0, 1, 2]
    image, _ = next(iter(flow))
    assert image.shape == (3, 4, 2)
    assert image[0, 1].tolist() == [1, 13]
    assert sorted(numbers(CaffeLMDB(lmdb_path, keys="{:0>8d}"))) == [0, 1, 2]
    short = LMDBDataDecoder(
        LMDBData(lmdb_path, shuffle=False), lambda key, value: [int(key)] if key != b"00000001" else None
    )
    assert numbers(short) == [0, 2]


def test_a_key_that_is_not_there_is_told(lmdb_path):
    with pytest.raises(InputError, match="has no key b'7'"):
        numbers(LMDBData(lmdb_path, keys=["7"]))
    with pytest.raises(InputError, match="there is no file"):
        LMDBData(f"{lmdb_path}/other")


def test_what_is_no_datum_is_told(tmp_path):
    import lmdb

    with lmdb.open(str(tmp_path)) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a", b"\xff\xff")
    with pytest.raises(InputError, match=r"the value of key b'a' is not a caffe\.Datum"):
        numbers(CaffeLMDB(str(tmp_path), shuffle=False))


def test_rows_of_data_sets(tmp_path):
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"], file["z"] = np.arange(12).reshape(6, 2), np.arange(6), np.arange(5)
    flow = HDF5Data(str(tmp_path / "a.h5"), ["x", "y"], shuffle=False)
    assert numbers(flow) == list(range(6))
    for paths, message in [(["x", "z"], "expected arrays of equal length"), (["x", "w"], "lacks some of x, w")]:
        with pytest.raises(InputError, match=message):
            HDF5Data(str(tmp_path / "a.h5"), paths)
    (tmp_path / "s.txt").write_text("1 1:2 3:4\n-1 2:1\n")
    assert sorted(numbers(SVMLightData(str(tmp_path / "s.txt")))) == [-1, 1]
    (tmp_path / "s.txt").write_text("no numbers\n")
    with pytest.raises(InputError, match="damaged"):
        SVMLightData(str(tmp_path / "s.txt"))


def test_a_flow_is_sent_and_received(tmp_path):
    address = f"ipc://{tmp_path}/socket"
    context = multiprocessing.get_context("spawn")
    sender = context.Process(target=send_dataflow_zmq, args=(source(), address), daemon=True)
    sender.start()
    try:
        flow = RemoteDataZMQ(address)
        assert numbers(flow, 8) == [0, 1, 2, 3, 4, 5, 0, 1]
        assert (flow.cnt1, flow.cnt2) == (8, 0)
    finally:
        os.kill(sender.pid, signal.SIGKILL)
        sender.join(30)


def test_bytes_that_are_no_datapoint_are_told(tmp_path):
    import zmq

    address = f"ipc://{tmp_path}/socket"
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(address)
        thread = threading.Thread(target=socket.send, args=(b"nonsense",))
        thread.start()
        with pytest.raises(InputError, match="8 bytes that send_dataflow_zmq did not send"):
            numbers(RemoteDataZMQ(address))
        thread.join(30)


def test_addresses_and_formats_are_checked():
    with pytest.raises(ConfigError, match="the address nowhere cannot be used"):
        next(iter(RemoteDataZMQ("nowhere")))
    with pytest.raises(ConfigError, match="builds for TensorFlow 1 only"):
        send_dataflow_zmq(source(), "ipc:///tmp/x", format="zmq_ops")
    with pytest.raises(InputError, match="has no datapoint"):
        send_dataflow_zmq(DataFromList([]), "ipc:///tmp/tpk-nobody-listens")


def test_datapoints_of_a_shape_that_are_left_wait_for_the_next_pass():
    data = DataFromList([[np.zeros(size)] for size in (1, 2, 1, 2, 1)], shuffle=False)
    flow = dataflow.BatchDataByShape(data, 2, 0)
    flow.reset_state()
    assert [len(list(flow)) for _ in range(4)] == [2, 3, 2, 3]
    next(iter(flow))
    flow.reset_state()
    assert [batch[0].shape for batch in flow] == [(2, 1), (2, 2)]
