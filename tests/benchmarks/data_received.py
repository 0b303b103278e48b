"""How fast batches that two worker processes make are received in the main process.

python tests/benchmarks/data_received.py

The workers of each contender make images (float32, all of an image the same number, written anew by `numpy.full`) and
put them together as batches with the contender's own means. A batch counts when the main process has it as an array; no
byte of it is read there, and it is dropped before the next one is asked for. The baselines are one copy of a batch by
NumPy, a ring of shared memory written by hand, and the same flow iterated in this process.
"""

from __future__ import annotations

import argparse
import atexit
import multiprocessing
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from tpk.dataflow import (
    BatchData,
    DataFromList,
    MapData,
    MultiProcessMapData,
    MultiProcessRunner,
    RepeatedData,
)

WORKERS, BATCH = 2, 32
MEMCPY, RING, OURS = "one memcpy", "a ring by hand", "tpk MultiProcessRunner"
IMAGES = {"large": (224, 224, 3), "small": (8, 8, 1)}
NUMBERS = range(BATCH * 1000)
BATCHES = {"large": 40, "small": 3000}
READ_AHEAD = {"large": 16, "small": 500}
"""Batches that are taken before the clock starts: more than any contender has ready from the pause before."""
REACH = ((RING, 0.95), ("torch DataLoader", 3.0), ("tensorpack MultiProcessRunnerZMQ", 3.0), ("grain", 3.0))

Next = Callable[[], Any]
Shape = tuple[int, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=12, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--size", choices=[*IMAGES, "both"], default="both")
    parser.add_argument("--only", help="those whose names contain this, and the baselines")
    args = parser.parse_args()
    for size in IMAGES if args.size == "both" else [args.size]:
        compare(size, args.repeats, args.only or "")
    return 0


def compare(size: str, repeats: int, only: str) -> None:
    load = os.getloadavg()[0]
    shape = IMAGES[size]
    contenders: dict[str, Next] = {}
    missing = []
    for name, make in CONTENDERS.items():
        if only not in name and name not in (MEMCPY, RING, OURS):
            continue
        try:
            contenders[name] = make(shape)
        except ImportError as error:
            missing.append(f"{name} is not available here: {error}")
    for name, next_batch in contenders.items():
        check(name, next_batch(), shape)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(repeats):
        random.shuffle(order)
        for name in order:
            rates[name].append(block(contenders[name], size))

    megabytes = BATCH * np.prod(shape) * 4 / 1e6
    print(
        f"\n{size}: float32 batches of {'x'.join(map(str, (BATCH, *shape)))}, {megabytes:.3g} MB, {WORKERS} workers; "
        f"{os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; Python "
        f"{platform.python_version()}, NumPy {np.__version__}; {repeats} blocks of {BATCHES[size]} batches, in turn\n"
    )
    print(f"{'':<34}  batches/s      MB/s  x {MEMCPY}  x {RING}")
    for name, own in rates.items():
        rate = statistics.median(own)
        print(
            f"{name:<34}  {rate:>9.0f}  {rate * megabytes:>8.0f}  {ratio(own, rates[MEMCPY]):>12.3f}"
            f"  {ratio(own, rates[RING]):>16.3f}"
        )
    print(*missing, sep="\n")
    if size == "large":
        for name, least in REACH:
            if name in rates:
                reached = ratio(rates[OURS], rates[name])
                verdict = "ok" if reached >= least else "NOT REACHED"
                print(f"{OURS} / {name}: {reached:.2f} (reach: at least {least}) {verdict}")


def check(name: str, batch: Any, shape: Shape) -> None:
    """See to it that a contender delivers whole batches: images of one number each."""
    images = np.asarray(batch[0] if isinstance(batch, (list, tuple)) else batch)
    rows = images.reshape(len(images), -1)
    if images.shape != (BATCH, *shape) or images.dtype != np.float32 or (rows != rows[:, :1]).any():
        raise AssertionError(f"{name} delivers something else: {images.dtype} of {images.shape}")


def block(next_batch: Next, size: str) -> float:
    """Return batches per second."""
    for _ in range(READ_AHEAD[size]):
        next_batch()
    start = time.perf_counter()
    for _ in range(BATCHES[size]):
        next_batch()
    seconds = time.perf_counter() - start
    time.sleep(0.2)  # until what it reads ahead is there, and its workers rest
    return BATCHES[size] / seconds


def ratio(own: list[float], others: list[float]) -> float:
    """Return the median of the ratios in the same round."""
    return statistics.median(mine / other for mine, other in zip(own, others, strict=True))


# What the workers make


def image(number: int, shape: Shape) -> np.ndarray[Any, Any]:
    return np.full(shape, number, np.float32)


def batch_of(numbers: range, shape: Shape) -> np.ndarray[Any, Any]:
    batch = np.empty((len(numbers), *shape), np.float32)
    for place, number in enumerate(numbers):
        batch[place] = image(number, shape)
    return batch


def batches(shape: Shape) -> BatchData:
    return BatchData(MapData(RepeatedData(DataFromList(NUMBERS), -1), lambda number: [image(number, shape)]), BATCH)


# The baselines


def memcpy(shape: Shape) -> Next:
    batch = batch_of(NUMBERS[:BATCH], shape)
    copy = np.empty_like(batch)

    def copy_once() -> Any:
        np.copyto(copy, batch)
        return copy

    return copy_once


def in_process(shape: Shape) -> Next:
    return iter(batches(shape)).__next__


SLOTS = 4


def ring(shape: Shape) -> Next:
    """Each worker puts its images into the next of a few batches in shared memory, once that one is free."""
    context = multiprocessing.get_context("spawn")
    workers = []
    for index in range(WORKERS):
        memory = SharedMemory(create=True, size=SLOTS * BATCH * int(np.prod(shape)) * 4)
        atexit.register(memory.unlink)
        free, filled = context.Semaphore(SLOTS), context.Semaphore(0)
        context.Process(target=fill_ring, args=(memory.name, shape, index, free, filled), daemon=True).start()
        workers.append((slots_of(memory, shape), free, filled))

    def deliver() -> Iterator[Any]:
        for turn in range(sys.maxsize):
            slots, free, filled = workers[turn % WORKERS]
            filled.acquire()
            yield slots[turn // WORKERS % SLOTS]
            free.release()

    return deliver().__next__


def fill_ring(name: str, shape: Shape, index: int, free: Any, filled: Any) -> None:
    memory = SharedMemory(name, track=False) if sys.version_info >= (3, 13) else SharedMemory(name)
    slots = slots_of(memory, shape)
    for turn in range(sys.maxsize):
        free.acquire()
        batch = slots[turn % SLOTS]
        first = (turn * WORKERS + index) * BATCH
        for place in range(BATCH):
            batch[place] = image(NUMBERS[(first + place) % len(NUMBERS)], shape)
        filled.release()


def slots_of(memory: SharedMemory, shape: Shape) -> np.ndarray[Any, Any]:
    return np.ndarray((SLOTS, BATCH, *shape), np.float32, memory.buf)


# The contenders


def runner(shape: Shape) -> Next:
    return iter(MultiProcessRunner(batches(shape), WORKERS)).__next__


def process_map(shape: Shape) -> Next:
    """Here a worker is sent the numbers of a batch, and copies the batch that the function has made."""
    starts = RepeatedData(DataFromList(range(0, len(NUMBERS), BATCH)), -1)

    def make(start: int) -> list[Any]:
        return [batch_of(NUMBERS[start : start + BATCH], shape)]

    return iter(MultiProcessMapData(starts, WORKERS, make)).__next__


def zmq_without_key(shape: Shape) -> Next:
    """A directory of the user's own keeps others out."""
    return zmq_receiver(shape, f"ipc://{tempfile.mkdtemp()}/socket")


def zmq_encrypted(shape: Shape) -> Next:
    return zmq_receiver(shape, "tcp://127.0.0.1:*", key="secret")


def zmq_receiver(shape: Shape, address: str, **options: Any) -> Next:
    from tpk_zmq import RemoteDataZMQ

    flow = RemoteDataZMQ(address, senders=WORKERS, **options)
    flow.reset_state()
    for _ in range(WORKERS):
        multiprocessing.get_context("spawn").Process(
            target=send_batches, args=(shape, flow.addresses, options), daemon=True
        ).start()
    return iter(flow).__next__


def send_batches(shape: Shape, addresses: Any, options: dict[str, Any]) -> None:
    from tpk_zmq import send_dataflow_zmq

    send_dataflow_zmq(batches(shape), addresses, **options)


def torch_loader(shape: Shape) -> Next:
    from torch.utils.data import DataLoader, Dataset

    class Images(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return sys.maxsize

        def __getitem__(self, number: int) -> Any:
            return image(NUMBERS[number % len(NUMBERS)], shape)

    return iter(DataLoader(Images(), batch_size=BATCH, num_workers=WORKERS)).__next__


def grain_loader(shape: Shape) -> Next:
    import grain

    images = grain.MapDataset.range(len(NUMBERS)).map(lambda number: image(number, shape)).repeat().batch(BATCH)
    # By default each worker has 16 threads, and reads 500 batches ahead: 10 GB of them.
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=SLOTS)
    options = grain.MultiprocessingOptions(num_workers=WORKERS)
    return iter(images.to_iter_dataset(reading).mp_prefetch(options)).__next__


def tensorpack_batches(shape: Shape) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # It imports TensorFlow if that is there.
    from tensorpack.dataflow import BatchData as TensorpackBatchData, DataFlow

    class Images(DataFlow):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[Any]]:
            while True:
                for number in NUMBERS:
                    yield [image(number, shape)]

    return TensorpackBatchData(Images(), BATCH)


def tensorpack_runner(shape: Shape) -> Next:
    from tensorpack.dataflow import MultiProcessRunner as TensorpackRunner

    flow = TensorpackRunner(tensorpack_batches(shape), num_prefetch=4, num_proc=WORKERS)
    flow.reset_state()
    return iter(flow).__next__


def tensorpack_zmq(shape: Shape) -> Next:
    from tensorpack.dataflow import MultiProcessRunnerZMQ

    flow = MultiProcessRunnerZMQ(tensorpack_batches(shape), num_proc=WORKERS, hwm=4)
    flow.reset_state()
    return iter(flow).__next__


CONTENDERS: dict[str, Callable[[Shape], Next]] = {
    MEMCPY: memcpy,
    RING: ring,
    "the flow in this process": in_process,
    OURS: runner,
    "tpk MultiProcessMapData": process_map,
    "tpk RemoteDataZMQ, ipc": zmq_without_key,
    "tpk RemoteDataZMQ, tcp, encrypted": zmq_encrypted,
    "torch DataLoader": torch_loader,
    "tensorpack MultiProcessRunner": tensorpack_runner,
    "tensorpack MultiProcessRunnerZMQ": tensorpack_zmq,
    "grain": grain_loader,
}

if __name__ == "__main__":
    sys.exit(main())
