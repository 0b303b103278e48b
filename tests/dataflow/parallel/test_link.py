"""What goes through shared memory: any kind of data, with one copy, and memory that is kept while it is looked at."""

from __future__ import annotations

import mmap
import os
import platform
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from collections import namedtuple
from fractions import Fraction
from itertools import islice

import cloudpickle
import numpy as np
import pytest

from tpk.dataflow import (
    BatchData,
    BatchDataByShape,
    CacheData,
    DataFromGenerator,
    DataFromList,
    FixedSizeData,
    JoinData,
    LocallyShuffleData,
    MapData,
    MultiProcessMapData,
    MultiProcessRunner,
    PrintData,
    RepeatedData,
    RepeatedDataPoint,
)
from tpk.dataflow.base import close_dataflow
from tpk.dataflow.memory import allocate_arrays
from tpk.dataflow.parallel.blocks import BlockFile, create_file
from tpk.dataflow.parallel.link import LinkClosed, Receiver, Sender

# Workers cannot import the modules of tests, which pytest imports by path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Pair = namedtuple("Pair", "left right")

LARGE = np.arange(300_000, dtype=np.float32).reshape(3, 100_000)
KINDS = {
    "list": [LARGE, np.int32(3), np.arange(5)],
    "list of arrays": [LARGE, np.arange(5)],
    "tuple": (LARGE, LARGE[0]),
    "dict": {"image": LARGE, "label": np.array(3)},
    "mixed dict": {"image": LARGE, "label": 3},
    "nested": [{"a": [LARGE, (1, "two", b"three")]}, None],
    "named tuple": Pair(LARGE, 1),
    "an array alone": LARGE,
    "a number alone": 7,
    "text": "ä" * 10_000,
    "bytes": [bytes(range(256)) * 1000, bytearray(b"abc" * 1000)],
    "not contiguous": [LARGE.T, LARGE[:, ::3]],
    "Fortran order": [np.asfortranarray(LARGE)],
    "no elements": [np.zeros([0, 3]), np.zeros([], np.int8)],
    "nothing": [],
    "structured": [np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])],
    "dates": [np.array(["2026-11-21"], "datetime64[D]"), np.array([1, 2], ">i2")],
    "objects": [np.array([Fraction(1, 3), "x"], object)],
    "texts": [np.array(["one", "eleven"])],
    "large integer": [1 << 100_000],
}


@pytest.fixture
def file():
    """The descriptor of the file for the blocks of `link`."""
    return create_file()


@pytest.fixture
def sockets():
    """The two ends of the socket of `link`."""
    here, there = socket.socketpair()
    with here, there:
        yield here, there


@pytest.fixture
def link(file, sockets):
    """A sender and a receiver in one process."""
    here, there = sockets
    return Sender(here, BlockFile(file)), Receiver(there, BlockFile(os.dup(file)))


gives_memory_back = pytest.mark.skipif(
    not hasattr(mmap, "MADV_REMOVE"), reason="memory of a file can be given back on Linux only"
)


def memory_in_use(file):
    return os.fstat(file).st_blocks * 512


def memory_ever_made(file):
    return os.fstat(file).st_size


def assert_same(received, sent):
    assert type(received) is type(sent)
    if isinstance(sent, np.ndarray):
        assert received.dtype == sent.dtype
        np.testing.assert_array_equal(received, sent)
    elif isinstance(sent, dict):
        assert list(received) == list(sent)
        assert_same(list(received.values()), list(sent.values()))
    elif isinstance(sent, (list, tuple)):
        assert len(received) == len(sent)
        for mine, yours in zip(received, sent, strict=True):
            assert_same(mine, yours)
    else:
        assert received == sent


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_received_is_what_was_sent(link, kind):
    sender, receiver = link
    for _ in range(2):  # the second time by a known layout
        sender.send(KINDS[kind])
        assert_same(receiver.receive(), KINDS[kind])


def test_all_kinds_go_through_worker_processes():
    kinds = [value for kind, value in KINDS.items() if kind != "named tuple"]  # They cannot import this file.
    there_and_back = MultiProcessMapData(MultiProcessRunner(DataFromList(kinds), 1), 2, lambda datapoint: (datapoint,))
    for (received,), sent in zip(there_and_back, kinds, strict=True):
        assert_same(received, sent)
    close_dataflow(there_and_back)


def test_arrays_are_aligned_and_writable(link):
    sender, receiver = link
    sender.send([np.zeros(3, np.int8), LARGE, np.zeros(5)])
    for array in receiver.receive():
        assert array.ctypes.data % 64 == 0
        array[...] = 1


def test_memory_is_used_again_once_nobody_looks_at_it(link):
    sender, receiver = link
    addresses = set()
    for number in range(100):
        sender.send([np.full([1000], number)])
        received = receiver.receive()
        addresses.add(received[0].ctypes.data)
        assert (received[0] == number).all()
    assert len(addresses) < 80


def test_a_view_that_is_kept_stays_as_it_is(link):
    sender, receiver = link
    kept = []
    for number in range(100):
        sender.send([np.full([1000], number), np.full([10], -number)])
        kept.append(receiver.receive()[0][::7])
    assert all((view == number).all() for number, view in enumerate(kept))


def test_an_array_within_an_object_keeps_its_memory(link):
    sender, receiver = link
    kept = []
    for number in range(100):
        sender.send({"name": "x", "values": [np.full([1000], number)]})
        kept.append(receiver.receive()["values"][0][5:])
    assert all((view == number).all() for number, view in enumerate(kept))


def test_what_is_kept_outlives_its_worker():
    flow = MultiProcessRunner(DataFromGenerator(lambda: ([np.full([1000], n)] for n in range(50))), 2)
    kept = [datapoint[0] for datapoint in flow]
    close_dataflow(flow)
    del flow
    assert all((array == number).all() for number, array in enumerate(kept))


@gives_memory_back
def test_sizes_may_vary_and_memory_does_not_grow(link, file):
    sender, receiver = link
    rng = np.random.default_rng(0)
    for size in rng.integers(0, 100_000, 3000).tolist():
        sender.send([np.full([size], size, np.int32)])
        received = receiver.receive()[0]
        assert received.shape == (size,)
        assert (received == size).all()
        del received
    assert memory_in_use(file) < 70 * 450_000


def test_layouts_are_forgotten_when_there_are_many(link):
    sender, receiver = link
    in_use = []
    tracemalloc.start()
    try:
        for size in range(3000):
            sender.send([np.full([size], size, np.int32)])
            assert len(receiver.receive()[0]) == size
            if size % 500 == 499:
                in_use.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert in_use[-1] < 2 * in_use[0]


@gives_memory_back
def test_many_kept_then_dropped_give_their_memory_back(link, file):
    sender, receiver = link
    kept = []
    for number in range(1000):
        sender.send([np.full(1000, number)])
        kept.append(receiver.receive())
    assert all((array == number).all() for number, (array,) in enumerate(kept))
    assert 200 * 8192 < memory_in_use(file) < 350 * 8192
    assert all(array.ctypes.data % 64 == 0 for (array,) in kept)
    kept.clear()
    for _ in range(1000):
        sender.send([np.zeros(1000)])
        receiver.receive()
    assert memory_in_use(file) < 150 * 8192


@gives_memory_back
def test_memory_that_is_not_used_again_goes_back_to_the_system(link, file):
    sender, receiver = link
    for size in (1_000_000, 2_000_000, 4_000_000, 8_000_000):
        sender.send([np.full(size, 1, np.uint8)])
        received = receiver.receive()[0]
        assert received.sum() == size
        del received
    kept = []
    for number in range(100):
        sender.send([np.full(8_000_000, number, np.uint8)])
        kept.append(receiver.receive()[0])
    assert memory_in_use(file) > 100 * 8_000_000
    assert all(array[0] == array[-1] == number for number, array in enumerate(kept))
    kept.clear()
    for number in range(100):
        sender.send([np.full(8_000_000, number, np.uint8)])
        assert receiver.receive()[0][-1] == number
    assert memory_in_use(file) < 20 * 8_000_000


def test_the_memory_of_workers_does_not_grow_over_many_datapoints():
    psutil = pytest.importorskip("psutil")
    assert psutil

    def with_memory_in_use():
        import psutil

        process, rng = psutil.Process(), np.random.default_rng(0)
        for number in range(10_000):
            in_use = process.memory_info().rss if number % 1000 == 0 else 0
            yield [np.zeros(rng.integers(1, 20_000), np.uint8), np.array(in_use), np.array(number)]

    in_use = []
    for expected, (_, memory, number) in enumerate(MultiProcessRunner(DataFromGenerator(with_memory_in_use), 1)):
        assert number == expected
        if memory:
            in_use.append(int(memory))
    assert len(in_use) == 10
    assert in_use[-1] - in_use[2] < 10_000_000


FLOAT, LONG = np.dtype(np.float32), np.dtype(np.int64)


def allocated(sender, number=0):
    images, labels = sender.allocate([((100, 5000), FLOAT), ((100,), LONG)])
    images[...] = np.arange(500_000).reshape(100, 5000) + number
    labels[...] = np.arange(100) + number
    return images, labels


def test_what_was_allocated_is_sent_without_a_copy(link):
    sender, receiver = link
    images, labels = allocated(sender)
    assert images.ctypes.data % 64 == labels.ctypes.data % 64 == 0
    sender.send([images, labels])
    received = receiver.receive()
    assert_same(received, [images, labels])
    images[3, 4] = -1
    assert received[0][3, 4] == -1


ASSEMBLED = {
    "list": lambda images, labels: [images, labels],
    "tuple": lambda images, labels: (labels, images),
    "dict": lambda images, labels: {"image": images, "label": labels},
    "with others": lambda images, labels: [np.arange(7), images, np.arange(5.0), labels],
    "with large others": lambda images, labels: [images, LARGE, labels],
    "parts": lambda images, labels: [images[:60], labels[20:60]],
    "not contiguous": lambda images, labels: [images[:, ::2], labels, images.T],
    "one of them": lambda images, labels: [images],
    "nothing of it": lambda images, labels: [images[:0], labels[:0]],
    "other dtype": lambda images, labels: [images.view(np.int32), labels.astype(np.int8)],
    "with objects": lambda images, labels: [images, np.array(["a", "bc"], object), labels],
    "with numbers": lambda images, labels: [images, 3, labels],
    "nested": lambda images, labels: [{"a": [images, labels]}, "text"],
}


@pytest.mark.parametrize("kind", ASSEMBLED)
def test_what_was_allocated_comes_as_it_is_whatever_else_comes_along(link, kind):
    sender, receiver = link
    kept = []
    for number in range(40):
        sender.send(ASSEMBLED[kind](*allocated(sender, number)))
        received = receiver.receive()
        if number % 3 == 0:
            kept.append((number, received))
        del received
    for number, received in kept:
        assert_same(received, ASSEMBLED[kind](*allocated(sender, number)))


def test_small_arrays_and_objects_are_not_allocated_in_a_block(link, file):
    sender, receiver = link
    (small,) = sender.allocate([((10,), LONG)])
    objects, large = sender.allocate([((2,), np.dtype(object)), ((1_000_000,), LONG)])
    objects[:], large[:], small[:] = ["a", None], 1, 2
    assert memory_ever_made(file) == 0
    sender.send([small])
    assert receiver.receive()[0].tolist() == [2] * 10
    sender.send([objects, large])
    assert_same(receiver.receive(), [objects, large])


def test_what_was_allocated_and_dropped_is_used_again(link, file):
    sender, receiver = link
    for number in range(100):
        images, labels = allocated(sender)
        del images, labels
        images, labels = allocated(sender, number)
        sender.send([images, labels])
        del images, labels
        assert receiver.receive()[1][0] == number
    assert memory_ever_made(file) < 80 * 2_500_000


def test_what_was_allocated_and_is_kept_here_is_not_written_over(link):
    sender, receiver = link
    kept = []
    for number in range(100):
        images, labels = allocated(sender, number)
        sender.send([images, labels])
        receiver.receive()
        if number % 10 == 0:
            kept.append((number, labels))
    for number, labels in kept:
        assert labels[0] == number


def test_what_was_allocated_has_memory_of_its_own_each_time_it_is_sent(link):
    sender, receiver = link
    batch = list(allocated(sender))
    sender.send(batch)
    sender.send(batch)
    first, second = receiver.receive(), receiver.receive()
    assert_same(first, batch)
    assert_same(second, batch)
    first[0][...] = -1
    assert_same(second[0], np.arange(500_000, dtype=np.float32).reshape(100, 5000))


def test_there_is_room_for_small_components_that_come_along(link):
    sender, receiver = link
    for number in range(5):
        images, labels = allocated(sender, number)
        sender.send([np.full(500, number), images, labels[:80], np.full(10, number)])
        received = receiver.receive()
        assert received[3][-1] == number
        images[3, 4] = -1
        assert received[1][3, 4] != -1  # a copy: the labels are elsewhere in the layout
        sender.send([np.full(90, number), images, labels])
        received = receiver.receive()
        assert received[0][-1] == number
        images[3, 4] = -2
        assert received[1][3, 4] == -2
        del images, labels, received


def rows(number):
    return [np.full([50, 1000], number, np.float32), number]


IN_PLACE = {
    "BatchData": lambda: BatchData(MapData(range(23), rows), 5),
    "remainder": lambda: BatchData(MapData(range(23), rows), 5, remainder=True),
    "dict": lambda: BatchData(MapData(range(23), lambda n: {"x": rows(n)[0], "n": n}), 5),
    "texts": lambda: BatchData(MapData(range(23), lambda n: [rows(n)[0], str(n)]), 5),
    "BatchDataByShape": lambda: BatchDataByShape(MapData(range(23), lambda n: [rows(n)[0][: 40 + n % 2]]), 5, 0, True),
    "RepeatedData": lambda: RepeatedData(BatchData(MapData(range(20), rows), 5), 3),
    "FixedSizeData": lambda: FixedSizeData(BatchData(MapData(range(20), rows), 5), 6),
    "PrintData": lambda: PrintData(BatchData(MapData(range(20), rows), 5)),
}


@pytest.mark.parametrize("kind", IN_PLACE)
def test_batches_are_put_together_where_they_are_sent_from(kind):
    made = []

    def allocate(specs):
        made.extend(allocate_arrays(specs))
        return made[-len(specs) :]

    flow = IN_PLACE[kind]()
    flow.allocate_with(allocate)
    for batch in flow:
        images = batch["x"] if isinstance(batch, dict) else batch[0]
        assert any(np.shares_memory(images, array) for array in made)


@pytest.mark.parametrize(
    ("kind", "number"),
    # Two workers put the datapoints of their shares together by shape.
    [(kind, number) for kind in IN_PLACE for number in (1, 2) if (kind, number) != ("BatchDataByShape", 2)],
)
def test_batches_of_workers_are_those_of_the_flow(kind, number):
    flow, reference = MultiProcessRunner(IN_PLACE[kind](), number), IN_PLACE[kind]()
    for _ in range(2):
        received = list(flow)  # all of them are kept
        for mine, yours in zip(received, reference, strict=True):
            assert_same(mine, yours)
    close_dataflow(flow)


@pytest.mark.parametrize(
    "above",
    [
        CacheData,
        lambda flow: RepeatedDataPoint(flow, 2),
        lambda flow: LocallyShuffleData(flow, 2, seed=1),
        lambda flow: MapData(flow, lambda batch: batch),
        lambda flow: JoinData([flow]),
    ],
    ids=["CacheData", "RepeatedDataPoint", "LocallyShuffleData", "MapData", "JoinData"],
)
def test_what_is_kept_or_delivered_again_in_a_worker_is_not_the_receivers(above):
    flow = MultiProcessRunner(above(BatchData(MapData(range(20), rows), 5)), 1)
    passes = []
    for _ in range(2):
        passes.append([])
        for images, numbers in flow:
            passes[-1].append((float(images[0, 0, 0]), numbers.tolist()))
            images[...] = -1
            numbers[...] = -1
    close_dataflow(flow)
    assert sorted(passes[0]) == sorted(passes[1])
    assert all(first == numbers[0] for first, numbers in passes[0])


def test_the_memory_of_a_worker_that_drops_batches_does_not_grow(link, file):
    sender, receiver = link
    flow = BatchData(MapData(range(23), rows), 5)  # 3 datapoints of each pass are dropped
    flow.allocate_with(sender.allocate)
    for _ in range(30):
        for batch in flow:
            sender.send(batch)
            del batch
            receiver.receive()
    assert memory_ever_made(file) < 10 * 1_200_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of other C libraries nothing can be asked")
def test_what_a_datapoint_frees_in_a_worker_serves_for_the_next_one():
    def page_faults(number):
        images = [np.full(150_000, number, np.float32) for _ in range(8)]
        return [np.array(resource.getrusage(resource.RUSAGE_SELF).ru_minflt), np.array(len(images))]

    flow = MultiProcessRunner(MapData(range(400), page_faults), 1)
    faults = [int(count) for count, _ in flow]
    close_dataflow(flow)
    pages = 8 * 150_000 * 4 // mmap.PAGESIZE
    assert faults[-1] - faults[100] < 300 * pages / 20


def test_a_sender_waits_for_a_receiver_that_is_behind(link, sockets):
    sender, receiver = link
    sent = []

    def send_forever():
        try:
            while True:
                sender.send([np.zeros(1_000_000)])  # 8 MB: 8 of them are 64 MB
                sent.append(1)
        except LinkClosed:
            pass

    thread = threading.Thread(target=send_forever)
    thread.start()
    for _ in range(30):
        receiver.receive()
    assert len(sent) <= 30 + 9
    sockets[1].shutdown(socket.SHUT_RDWR)
    thread.join(30)
    assert not thread.is_alive()


def test_a_receiver_learns_that_the_sender_is_gone(link, sockets):
    sender, receiver = link
    sender.send([1])
    sockets[0].shutdown(socket.SHUT_RDWR)
    assert receiver.receive() == [1]
    with pytest.raises(LinkClosed):
        receiver.receive()


def test_the_number_ahead_can_be_chosen():
    made = []

    def count_up():
        for number in range(100):
            yield [number]

    flow = MultiProcessRunner(DataFromGenerator(count_up), 1, num_prefetch=1)
    made = [number for (number,) in islice(flow, 10)]
    assert made == list(range(10))
    close_dataflow(flow)


def test_workers_take_few_descriptors_however_much_is_ahead_and_kept(tmp_path):
    code = """
        import ctypes, os, resource, sys, threading, time
        from pathlib import Path
        import numpy as np
        from tpk.dataflow import DataFromGenerator, MultiProcessRunner

        # Of what is sent, and not received yet, the superuser may have any number.
        CAP_SYS_ADMIN, CAP_SYS_RESOURCE, PR_CAPBSET_DROP = 21, 24, 24
        if sys.platform == "linux" and os.getuid() == 0:
            for capability in (CAP_SYS_ADMIN, CAP_SYS_RESOURCE):
                assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        far_ahead = Path(sys.argv[1])

        def numbers():
            for number in range(1000):
                if number == 250:
                    (far_ahead / str(os.getpid())).touch()
                yield [np.full(10, number)]

        flow = MultiProcessRunner(DataFromGenerator(numbers), 4)
        datapoints = iter(flow)
        kept = [next(datapoints)[0]]
        deadline = time.monotonic() + 60
        while len(list(far_ahead.iterdir())) < 4:
            assert time.monotonic() < deadline, "a worker has not come far"
            threading.Event().wait(0.01)
        kept += [array for (array,) in datapoints]
        assert [int(array[-1]) for array in kept] == list(range(1000))
        flow.close()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), tmp_path], check=True, timeout=180)
