"""How fast the flows of tpk.dataflow are, next to the flows of the same name in tensorpack 0.11.

python tests/benchmarks/flows.py

Both run in this process and take turns, a block of datapoints each; the figure is the median over the blocks. It needs
`pip install tensorpack==0.11` with msgpack, msgpack-numpy, opencv-python-headless, tabulate, termcolor, psutil and
pyzmq, but not TensorFlow.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np

import tpk.dataflow

SMALL, LARGE = ((28, 28), np.float32), ((224, 224, 3), np.uint8)
Flow = Any


def arrays(spec: tuple[tuple[int, ...], Any], count: int) -> list[list[Any]]:
    shape, dtype = spec
    return [[np.full(shape, number, dtype), number] for number in range(count)]


def images(spec: tuple[tuple[int, ...], Any], count: int) -> list[list[Any]]:
    return [[image] for image, _ in arrays(spec, count)]


def named(spec: tuple[tuple[int, ...], Any], count: int) -> list[dict[str, Any]]:
    return [{"image": image, "label": label} for image, label in arrays(spec, count)]


def endless(library: Any, items: list[Any]) -> Flow:
    return library.RepeatedData(library.DataFromList(items, shuffle=False), -1)


def same(datapoint: Any) -> Any:
    return datapoint


CASES: dict[str, tuple[int, Callable[[Any], Flow]]] = {
    "DataFromList": (20_000, lambda lib: lib.DataFromList(images(SMALL, 50_000), shuffle=False)),
    "DataFromList, shuffled": (20_000, lambda lib: lib.DataFromList(images(SMALL, 50_000), shuffle=True)),
    "DataFromGenerator": (20_000, lambda lib: lib.DataFromGenerator(lambda: repeat([1, 2], 50_000))),
    "DataFromIterable": (20_000, lambda lib: lib.DataFromIterable([[1, 2]] * 50_000)),
    "FakeData": (1_000, lambda lib: lib.FakeData([(28, 28), (1,)], 5_000)),
    "FakeData, the same": (20_000, lambda lib: lib.FakeData([(28, 28), (1,)], 50_000, random=False)),
    "BatchData, 4 x 28x28 float32": (1_000, lambda lib: lib.BatchData(endless(lib, images(SMALL, 64)), 4)),
    "BatchData, 32 x 28x28 float32": (300, lambda lib: lib.BatchData(endless(lib, images(SMALL, 256)), 32)),
    "BatchData, 32 x 224x224x3 uint8": (50, lambda lib: lib.BatchData(endless(lib, images(LARGE, 256)), 32)),
    "BatchData, 32 x image and label": (300, lambda lib: lib.BatchData(endless(lib, arrays(SMALL, 256)), 32)),
    "BatchData, 32 x dict": (300, lambda lib: lib.BatchData(endless(lib, named(SMALL, 256)), 32)),
    "BatchData on MapData, 28x28": (
        300,
        lambda lib: lib.BatchData(lib.MapData(endless(lib, images(SMALL, 256)), same), 32),
    ),
    "BatchData on MapData, 224x224x3": (
        50,
        lambda lib: lib.BatchData(lib.MapData(endless(lib, images(LARGE, 256)), same), 32),
    ),
    "BatchDataByShape": (300, lambda lib: lib.BatchDataByShape(endless(lib, images(SMALL, 256)), 32, 0)),
    "MapData": (20_000, lambda lib: lib.MapData(endless(lib, [[1, 2]] * 1000), same)),
    "MapDataComponent": (20_000, lambda lib: lib.MapDataComponent(endless(lib, [[1, 2]] * 1000), abs, 0)),
    "SelectComponent": (20_000, lambda lib: lib.SelectComponent(endless(lib, [[1, 2]] * 1000), [1, 0])),
    "RepeatedData": (20_000, lambda lib: endless(lib, [[1, 2]] * 1000)),
    "RepeatedDataPoint": (20_000, lambda lib: lib.RepeatedDataPoint(endless(lib, [[1, 2]] * 1000), 2)),
    "FixedSizeData": (20_000, lambda lib: lib.FixedSizeData(endless(lib, [[1, 2]] * 1000), 50_000)),
    "LocallyShuffleData": (20_000, lambda lib: lib.LocallyShuffleData(endless(lib, [[1, 2]] * 1000), 500)),
    "CacheData": (20_000, lambda lib: lib.CacheData(lib.DataFromList([[1, 2]] * 50_000, shuffle=False))),
    "PrintData": (20_000, lambda lib: lib.PrintData(endless(lib, [[1, 2]] * 1000))),
    "ConcatData": (20_000, lambda lib: lib.ConcatData([endless(lib, [[1, 2]] * 1000)])),
    "JoinData": (20_000, lambda lib: lib.JoinData([endless(lib, [[1, 2]] * 1000) for _ in range(2)])),
    # A whole pass: tensorpack draws the order of a pass when it begins.
    "RandomMixData": (
        50_000,
        lambda lib: lib.RandomMixData([lib.DataFromList([[1, 2]] * 25_000, shuffle=False) for _ in range(2)]),
    ),
    "RandomChooseData": (20_000, lambda lib: lib.RandomChooseData([endless(lib, [[1, 2]] * 1000) for _ in range(2)])),
    "MultiThreadMapData": (
        2_000,
        lambda lib: lib.MultiThreadMapData(endless(lib, [[1, 2]] * 1000), 2, map_func=same, buffer_size=100),
    ),
    "MultiThreadMapData, images": (
        1_000,
        lambda lib: lib.MultiThreadMapData(endless(lib, images(SMALL, 256)), 2, map_func=same, buffer_size=100),
    ),
    "MultiThreadRunner": (2_000, lambda lib: thread_runner(lib)),
}


def thread_runner(library: Any) -> Flow:
    def flow() -> Flow:
        return endless(library, [[1, 2]] * 1000)

    if library is tpk.dataflow:
        return library.MultiThreadRunner(flow, 2, num_prefetch=50)
    return library.MultiThreadRunner(flow, 100, 2)


class Turns:
    """Iterates a flow in blocks, pass after pass."""

    def __init__(self, flow: Flow) -> None:
        flow.reset_state()
        self._flow = flow
        self._datapoints = iter(flow)

    def block(self, count: int) -> float:
        """Return the seconds that `count` datapoints take."""
        done, seconds = 0, 0.0
        while done < count:
            start = time.perf_counter()
            for _ in self._datapoints:
                done += 1
                if done == count:
                    break
            seconds += time.perf_counter() - start
            if done < count:
                self._datapoints = iter(self._flow)
        return seconds

    def close(self) -> None:
        close = getattr(self._datapoints, "close", None)
        if close is not None:
            close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--only", default="", help="the cases whose names contain this")
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        import tensorpack.dataflow as tensorpack
    except ImportError as error:
        print(f"tensorpack is not available here: {error}")
        tensorpack = None
    print(f"{'µs per datapoint':<34}  {'tpk':>8}  tensorpack  tpk / tensorpack")
    for name, (count, make) in CASES.items():
        if args.only in name:
            compare(name, count, make, args.repeats, tensorpack)
    return 0


def compare(name: str, count: int, make: Callable[[Any], Flow], repeats: int, tensorpack: Any) -> None:
    contenders = {"tpk": Turns(make(tpk.dataflow))}
    if tensorpack is not None:
        contenders["tensorpack"] = Turns(make(tensorpack))
    times: dict[str, list[float]] = {who: [] for who in contenders}
    order = list(contenders)
    for turns in contenders.values():
        turns.block(count)
    for _ in range(repeats):
        random.shuffle(order)
        for who in order:
            times[who].append(contenders[who].block(count) / count * 1e6)
    for turns in contenders.values():
        turns.close()
    line = f"{name:<34}  {statistics.median(times['tpk']):>8.2f}"
    if tensorpack is not None:
        ratios = [ours / theirs for ours, theirs in zip(times["tpk"], times["tensorpack"], strict=True)]
        line += f"  {statistics.median(times['tensorpack']):>10.2f}  {statistics.median(ratios):>16.2f}"
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
