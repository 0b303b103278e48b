"""What goes through shared memory: any kind of data, with one copy, and memory that is kept while it is looked at."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections import namedtuple
from contextlib import contextmanager
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest

from tpk.dataflow import DataFromGenerator, DataFromList, MultiProcessMapData, MultiProcessRunner
from tpk.dataflow.base import close_dataflow
from tpk.dataflow.parallel.transport.block import BlockFile, create_file
from tpk.dataflow.parallel.transport.receiver import Receiver
from tpk.dataflow.parallel.transport.sender import Sender
from tpk.dataflow.parallel.transport.wire import LinkClosed

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
def link():
    """A sender and a receiver in one process."""
    with linked(create_file()) as ends:
        yield ends


@contextmanager
def linked(descriptor):
    here, there = socket.socketpair()
    with here, there:
        yield Sender(here, BlockFile(descriptor)), Receiver(there, BlockFile(os.dup(descriptor)))


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
    receiver_blocks = len(receiver._blocks)
    assert receiver_blocks < 80


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


def test_sizes_may_vary_and_memory_does_not_grow(link):
    sender, receiver = link
    rng = np.random.default_rng(0)
    for size in rng.integers(0, 100_000, 3000).tolist():
        sender.send([np.full([size], size, np.int32)])
        received = receiver.receive()[0]
        assert received.shape == (size,)
        assert (received == size).all()
        del received
    total = sum(len(block.memory) for block in receiver._blocks.values())
    assert total < 70 * 450_000
    assert len(receiver._layouts) <= 256


def test_many_kept_then_dropped_give_their_memory_back(link):
    sender, receiver = link
    kept = []
    for number in range(1000):
        sender.send([np.full(1000, number)])
        kept.append(receiver.receive())
    assert all((array == number).all() for number, (array,) in enumerate(kept))
    assert 200 < len(receiver._blocks) < 350
    assert all(array.ctypes.data % 64 == 0 for (array,) in kept)
    kept.clear()
    for _ in range(1000):
        sender.send([np.zeros(1000)])
        receiver.receive()
    assert len(receiver._blocks) < 150


@pytest.mark.skipif(not hasattr(mmap, "MADV_REMOVE"), reason="the system takes parts of a file back on Linux only")
def test_memory_that_is_not_used_again_goes_back_to_the_system():
    descriptor = create_file()
    with linked(descriptor) as (sender, receiver):
        for size in (1_000_000, 2_000_000, 4_000_000, 8_000_000):
            sender.send([np.full(size, 1, np.uint8)])
            received = receiver.receive()[0]
            assert received.sum() == size
            del received
            receiver._acknowledge()
        kept = []
        for number in range(100):
            sender.send([np.full(8_000_000, number, np.uint8)])
            kept.append(receiver.receive()[0])
        assert os.fstat(descriptor).st_blocks * 512 > 100 * 8_000_000
        assert all(array[0] == array[-1] == number for number, array in enumerate(kept))
        kept.clear()
        for number in range(100):
            sender.send([np.full(8_000_000, number, np.uint8)])
            assert receiver.receive()[0][-1] == number
        assert os.fstat(descriptor).st_blocks * 512 < 20 * 8_000_000


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


def test_a_sender_waits_for_a_receiver_that_is_behind(link):
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
    receiver._main.shutdown(socket.SHUT_RDWR)
    thread.join(30)
    assert not thread.is_alive()


def test_a_receiver_learns_that_the_sender_is_gone(link):
    sender, receiver = link
    sender.send([1])
    sender._main.shutdown(socket.SHUT_RDWR)
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
