"""How fast batches from two worker processes are received in the main process.

python tests/benchmarks/data_received.py

Each contender has two worker processes that deliver one and the same float32 batch for ever, so that nothing is
measured but the way to here; a batch counts when the main process has it as an array, and no byte of it is read. The
baselines are one copy of the batch by NumPy, and the iteration in this process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tpk.dataflow import (
    DataFromGenerator,
    DataFromList,
    MultiProcessMapData,
    MultiProcessRunner,
    RemoteDataZMQ,
    RepeatedData,
    send_dataflow_zmq,
)

WORKERS = 2
MEMCPY, OURS = "one memcpy", "tpk MultiProcessRunner"
SHAPES = {"large": (32, 224, 224, 3), "small": (32, 8, 8, 1)}
BATCHES = {"large": 40, "small": 5000}
READ_AHEAD = {"large": 16, "small": 500}
"""Batches that are taken before the clock starts: more than any contender has ready from the pause before."""
REACH = ((MEMCPY, 0.55), ("torch DataLoader", 3.0), ("tensorpack MultiProcessRunnerZMQ", 5.0))

Next = Callable[[], Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=12, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--size", choices=[*SHAPES, "both"], default="both")
    args = parser.parse_args()
    for size in SHAPES if args.size == "both" else [args.size]:
        compare(size, args.repeats)
    return 0


def compare(size: str, repeats: int) -> None:
    load = os.getloadavg()[0]
    batch = np.random.default_rng(0).random(SHAPES[size], np.float32)
    contenders: dict[str, Next] = {}
    missing = []
    for name, make in CONTENDERS.items():
        try:
            contenders[name] = make(batch)
        except ImportError as error:
            missing.append(f"{name} is not available here: {error}")
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(repeats):
        random.shuffle(order)
        for name in order:
            rates[name].append(block(contenders[name], size))

    megabytes = batch.nbytes / 1e6
    print(
        f"\n{size}: float32 batches of {'x'.join(map(str, batch.shape))}, {megabytes:.3g} MB, {WORKERS} workers; "
        f"{os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; Python "
        f"{platform.python_version()}, NumPy {np.__version__}; {repeats} blocks of {BATCHES[size]} batches, in turn\n"
    )
    print(f"{'':<34}  batches/s      MB/s  x {MEMCPY}")
    for name, own in rates.items():
        rate = statistics.median(own)
        print(f"{name:<34}  {rate:>9.0f}  {rate * megabytes:>8.0f}  {ratio(own, rates[MEMCPY]):>6.3f}")
    print(*missing, sep="\n")
    if size == "large":
        for name, least in REACH:
            if name in rates:
                reached = ratio(rates[OURS], rates[name])
                verdict = "ok" if reached >= least else "NOT REACHED"
                print(f"{OURS} / {name}: {reached:.2f} (reach: at least {least}) {verdict}")


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


# The contenders


def memcpy(batch: np.ndarray[Any, Any]) -> Next:
    copy = np.empty_like(batch)
    return lambda: np.copyto(copy, batch)


def for_ever(batch: np.ndarray[Any, Any]) -> DataFromGenerator:
    def generate() -> Iterator[list[Any]]:
        while True:
            yield [batch]

    return DataFromGenerator(generate)


def in_process(batch: np.ndarray[Any, Any]) -> Next:
    return iter(for_ever(batch)).__next__


def runner(batch: np.ndarray[Any, Any]) -> Next:
    return iter(MultiProcessRunner(for_ever(batch), WORKERS)).__next__


def process_map(batch: np.ndarray[Any, Any]) -> Next:
    """Here the batches go to the workers and back."""
    return iter(MultiProcessMapData(for_ever(batch), WORKERS, lambda datapoint: datapoint)).__next__


def zmq_without_key(batch: np.ndarray[Any, Any]) -> Next:
    """A directory of the user's own keeps others out."""
    return zmq_receiver(batch, f"ipc://{tempfile.mkdtemp()}/socket")


def zmq_encrypted(batch: np.ndarray[Any, Any]) -> Next:
    return zmq_receiver(batch, "tcp://127.0.0.1:*", key="secret")


def zmq_receiver(batch: np.ndarray[Any, Any], address: str, **options: Any) -> Next:
    flow = RemoteDataZMQ(address, senders=WORKERS, **options)
    flow.reset_state()
    for _ in range(WORKERS):
        multiprocessing.get_context("spawn").Process(
            target=send_dataflow_zmq,
            args=(RepeatedData(DataFromList([[batch]]), -1), flow.addresses),
            kwargs=options,
            daemon=True,
        ).start()
    return iter(flow).__next__


def torch_loader(batch: np.ndarray[Any, Any]) -> Next:
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class ForEver(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            while True:
                # A tensor of its own each time: one that has been sent before stays in shared memory.
                yield torch.as_tensor(batch)

    return iter(DataLoader(ForEver(), batch_size=None, num_workers=WORKERS)).__next__


def tensorpack_flow(batch: np.ndarray[Any, Any]) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # It imports TensorFlow if that is there.
    from tensorpack.dataflow import DataFlow

    class ForEver(DataFlow):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[Any]]:
            while True:
                yield [batch]

    return ForEver()


def tensorpack_runner(batch: np.ndarray[Any, Any]) -> Next:
    from tensorpack.dataflow import MultiProcessRunner as TensorpackRunner

    flow = TensorpackRunner(tensorpack_flow(batch), num_prefetch=4, num_proc=WORKERS)
    flow.reset_state()
    return iter(flow).__next__


def tensorpack_zmq(batch: np.ndarray[Any, Any]) -> Next:
    from tensorpack.dataflow import MultiProcessRunnerZMQ

    flow = MultiProcessRunnerZMQ(tensorpack_flow(batch), num_proc=WORKERS, hwm=4)
    flow.reset_state()
    return iter(flow).__next__


CONTENDERS: dict[str, Callable[[np.ndarray[Any, Any]], Next]] = {
    MEMCPY: memcpy,
    "in this process": in_process,
    OURS: runner,
    "tpk MultiProcessMapData": process_map,
    "tpk RemoteDataZMQ, ipc": zmq_without_key,
    "tpk RemoteDataZMQ, tcp, encrypted": zmq_encrypted,
    "torch DataLoader": torch_loader,
    "tensorpack MultiProcessRunner": tensorpack_runner,
    "tensorpack MultiProcessRunnerZMQ": tensorpack_zmq,
}

if __name__ == "__main__":
    sys.exit(main())
