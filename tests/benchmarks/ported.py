"""How fast a script of tensorpack's users is with tpk_tensorpack, next to tensorpack 0.11 on the same TensorFlow.

python tests/benchmarks/ported.py
python tests/benchmarks/ported.py --only "convnet, batch 4"

Both run the same lines and take turns, a block of steps or datapoints each; a training has a process. The speed is the
median over the rounds: how many times as fast as tensorpack this is. It needs tensorpack==0.11 with msgpack,
msgpack-numpy, opencv-python-headless, tabulate, termcolor, psutil and pyzmq, and a TensorFlow with which tensorpack
trains: at most 2.15.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from contenders import Blocks
from flows import SMALL, Turns, arrays, endless
from step_overhead import conditions, do_blocks, race, ratios

PACKAGES = ("tensorpack", "tpk_tensorpack")


def convnet(package: str, blocks: Blocks, batch: int) -> None:
    """Train the convnet of tensorpack's example for MNIST on images that are in memory."""
    import tensorflow as tf

    tp: Any = importlib.import_module(package)
    v1 = tf.compat.v1

    class Model(tp.ModelDesc):
        def inputs(self) -> list[Any]:
            return [tf.TensorSpec((None, 28, 28), tf.float32, "input"), tf.TensorSpec((None,), tf.int32, "label")]

        def build_graph(self, image: Any, label: Any) -> Any:
            image = tf.expand_dims(image, 3) * 2 - 1
            is_training = tp.get_current_tower_context().is_training
            with tp.argscope(tp.Conv2D, kernel_size=3, activation=tf.nn.relu, filters=32):
                features = tp.MaxPooling("pool0", tp.Conv2D("conv0", image), 2)
                features = tp.MaxPooling("pool1", tp.Conv2D("conv2", tp.Conv2D("conv1", features)), 2)
                features = tp.Conv2D("conv3", features)
            features = tp.FullyConnected("fc0", features, 512, activation=tf.nn.relu)
            features = tp.Dropout("dropout", features, rate=0.5 if is_training else 0.0)
            logits = tp.FullyConnected("fc1", features, units=10)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
            loss = tf.reduce_mean(loss, name="cross_entropy_loss")
            correct = tf.cast(tf.nn.in_top_k(predictions=logits, targets=label, k=1), tf.float32, name="correct")
            decay = tp.regularize_cost("fc.*/W", lambda weights: 1e-5 * tf.nn.l2_loss(weights), name="regularize_loss")
            cost = tf.add(loss, decay, name="total_cost")
            tp.tfutils.summary.add_moving_summary(tf.reduce_mean(correct, name="accuracy"), loss, cost)
            return cost

        def optimizer(self) -> Any:
            rate = v1.train.exponential_decay(1e-3, tp.tfutils.get_global_step_var(), 468 * 10, 0.3, name="rate")
            v1.summary.scalar("lr", rate)
            return v1.train.AdamOptimizer(rate)

    class Clock(tp.Callback):
        def _before_epoch(self) -> None:
            blocks.begin()

        def _after_epoch(self) -> None:
            blocks.end()

    random = np.random.RandomState(0)
    images = [[random.rand(28, 28).astype(np.float32), number % 10] for number in range(1024)]
    flow = tp.dataflow.BatchData(tp.dataflow.RepeatedData(tp.dataflow.DataFromList(images), -1), batch)
    tp.logger.set_logger_dir("train_log", action="d")
    config = tp.TrainConfig(
        model=Model(),
        data=tp.QueueInput(flow),
        callbacks=[Clock()],
        steps_per_epoch=blocks.steps,
        max_epoch=blocks.count,
    )
    tp.launch_train_with_config(config, tp.SimpleTrainer())


def images_of(lib: Any, batch: int) -> Any:
    return lib.BatchData(endless(lib, arrays(SMALL, 256)), batch)


def workers(lib: Any, *shape: int, dtype: str) -> Any:
    flow = lib.FakeData([shape], 1_000_000, random=False, dtype=dtype)
    return lib.MultiProcessRunnerZMQ(flow, 2)


TRAININGS = {f"convnet, batch {batch}": (steps, batch) for batch, steps in ((4, 200), (32, 50), (128, 15))}
"""The steps of a block, and the size of a batch."""

FLOWS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "BatchData, batches of 4": (2000, partial(images_of, batch=4)),
    "BatchData, batches of 32": (1000, partial(images_of, batch=32)),
    "BatchData, batches of 128": (300, partial(images_of, batch=128)),
    "MultiProcessRunnerZMQ, 4.8 MB": (100, lambda lib: workers(lib, 32, 224, 224, 3, dtype="uint8")),
    "MultiProcessRunnerZMQ, 8 kB": (3000, lambda lib: workers(lib, 32, 8, 8, 1, dtype="float32")),
}
"""The datapoints of a block, and the data flow."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--only", default="", help="the cases whose names contain this")
    args = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    for key, value in conditions(f"{os.getloadavg()[0]:.1f} at the start").items():
        print(f"{key + ':':<10}{value}")
    print(f"\n{'µs per step or datapoint':<32}{'tensorpack':>12}{'here':>12}{'speed':>8}  middle half")
    failed = False
    for case, (steps, _) in TRAININGS.items():
        if args.only in case:
            names = [f"{case}/{package}" for package in PACKAGES]
            timings, absent = race(dict.fromkeys(names), steps, args.repeats, False, contend)
            for name, absence in absent.items():
                print(f"{name}: {absence.reason}")
                failed |= absence.is_failure
            if not absent:
                tell(case, *(timings[name] for name in names))
    for case, (count, make) in FLOWS.items():
        if args.only in case:
            turns = [Turns(make(importlib.import_module(f"{package}.dataflow"))) for package in PACKAGES]
            # The first block is to warm up.
            blocks = [[each.block(count) / count * 1e6 for each in turns] for _ in range(args.repeats + 1)][1:]
            tell(case, *map(list, zip(*blocks, strict=True)))
            for each in turns:
                each.close()
    return int(failed)


def contend(
    name: str, source: Path | None, connection: Connection, steps: int, count: int, place: Path, show_output: bool
) -> None:
    """Be the contender ``<case>/<package>``: the main function of its process."""
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    case, package = name.split("/")
    do_blocks(partial(convnet, package, batch=TRAININGS[case][1]), connection, steps, count, place, show_output)


def tell(case: str, theirs: Sequence[float], ours: Sequence[float]) -> None:
    speed = ratios(theirs, ours)
    low, _, high = statistics.quantiles(speed, n=4, method="inclusive")
    times = f"{statistics.median(theirs):>12.1f}{statistics.median(ours):>12.1f}"
    print(f"{case:<32}{times}{statistics.median(speed):>8.2f}  {low:.2f} to {high:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
