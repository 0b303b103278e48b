"""What checkpoints take away from a training, and how long it takes to resume from them.

python tests/benchmarks/checkpoints.py

The model has 105 MB of variables and no slots. Three trainings take turns, a block of steps each: one that saves
nothing, the baseline; one that saves every 25 steps in between two steps; one that does so asynchronously. All files go
to a temporary directory, and are synced to its disk.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.checkpoint.files import newest_complete, state_bytes
from tpk.train.resume.state import take_state

v1 = tf.compat.v1

WIDTH, LAYERS, BATCH = 2560, 4, 64
EVERY = 25
NONE, SYNCHRONOUS, ASYNCHRONOUS = "no checkpoints", "in between steps", "asynchronous"
SIZES = (1, 10, 100, 400)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=6, help="timed blocks of each (default: %(default)s)")
    args = parser.parse_args()
    logging.getLogger("tpk").addHandler(logging.NullHandler())  # No log on the terminal.
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, TensorFlow "
        f"{tf.__version__}, NumPy {np.__version__}; {args.repeats} blocks of {2 * EVERY} steps each, in turn"
    )
    with tempfile.TemporaryDirectory() as directory:
        compare_saving(Path(directory), args.repeats)
    with tempfile.TemporaryDirectory() as directory:
        measure_resuming(Path(directory), args.repeats // 2)
    return 0


# Saving


class Train(tpk.Trainer):
    """A chain of dense layers, trained by plain gradient descent."""

    def __init__(self, width: int = WIDTH, layers: int = LAYERS) -> None:
        super().__init__()
        with self.graph.as_default():
            x = tf.random.stateless_normal([BATCH, width], [1, 2])
            for number in range(layers):
                x = tf.nn.relu(x @ v1.get_variable(f"weights{number}", [width, width]))
            self.train_op = v1.train.GradientDescentOptimizer(1e-9).minimize(tf.reduce_mean(x**2))


def compare_saving(directory: Path, repeats: int) -> None:
    when = tpk.Every(steps=EVERY)
    savers: dict[str, list[Any]] = {
        NONE: [],
        SYNCHRONOUS: [tpk.ModelSaver(max_to_keep=2, when=when, checkpoint_dir=directory / "synchronous")],
        ASYNCHRONOUS: [
            tpk.ModelSaver(max_to_keep=2, when=when, checkpoint_dir=directory / "asynchronous", asynchronous=True)
        ],
    }
    trainers = {name: ready(Train(), callbacks) for name, callbacks in savers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    longest: dict[str, list[float]] = {name: [] for name in trainers}
    for number in range(repeats + 1):
        for name, trainer in trainers.items():
            steps = take_steps(trainer, 2 * EVERY)
            if number > 0:
                seconds[name].append(sum(steps))
                longest[name].append(max(steps))
            for saver in savers[name]:
                saver.series.wait()  # What is left of a write is not for the others to wait for.

    size = sum(variable.shape.num_elements() for variable in trainers[NONE].graph.get_collection("variables")) * 4
    print(f"\n{size / 1e6:.0f} MB of variables, a checkpoint every {EVERY} steps\n")
    print(f"{'':<20}  ms per step  x {NONE}  ms per checkpoint  longest step, ms")
    for name, own in seconds.items():
        ratio = statistics.median(mine / other for mine, other in zip(own, seconds[NONE], strict=True))
        taken = statistics.median((mine - other) / 2 for mine, other in zip(own, seconds[NONE], strict=True))
        print(
            f"{name:<20}  {statistics.median(own) / (2 * EVERY) * 1e3:>11.1f}  {ratio:>16.3f}  {taken * 1e3:>17.0f}  "
            f"{statistics.median(longest[name]) * 1e3:>16.0f}"
        )
    trainer = trainers[SYNCHRONOUS]
    times = []
    for _ in range(50):
        start = time.perf_counter()
        state = state_bytes({"state": take_state(trainer, False)})
        times.append(time.perf_counter() - start)
    print(f"\ntraining state: {len(state) / 1e3:.1f} kB, taken and encoded in {statistics.median(times) * 1e3:.2f} ms")


def ready(trainer: Any, callbacks: list[Any]) -> Any:
    """Set a trainer up to just before its first step."""
    trainer.loop.starting_epoch, trainer.loop.max_epoch, trainer.loop.steps_per_epoch = 1, 1, 10**9
    trainer.setup(callbacks=callbacks, monitors=[], session_creator=tpk.NewSessionCreator())
    with trainer.graph.as_default(), trainer.sess.as_default():
        trainer.hooks.hook.before_train(trainer=trainer)
        trainer.loop.progress.begin_epoch(1)
        trainer.hooks.hook.before_epoch(trainer=trainer)
    return trainer


def take_steps(trainer: Any, count: int) -> list[float]:
    """Return how long each step took, with its hooks."""
    times = []
    with trainer.graph.as_default(), trainer.sess.as_default():
        for _ in range(count):
            start = time.perf_counter()
            trainer.run_step()
            trainer.hooked_sess.hooks.trigger(trainer)
            times.append(time.perf_counter() - start)
    return times


# Resuming


class Begins(tpk.Callback):
    def before_epoch(self) -> None:
        self.time = time.perf_counter()


def measure_resuming(directory: Path, repeats: int) -> None:
    print(f"\n{'variables, MB':>13}  fresh start, s  resumed, s  of that to verify the checkpoint, s")
    for megabytes in SIZES:
        width = int((megabytes * 1e6 / 4) ** 0.5)
        run_dir = directory / str(megabytes)
        Train(width, 1).train(callbacks=["ModelSaver"], steps_per_epoch=1, max_epoch=1, run_dir=run_dir)
        fresh, resumed, verified = [], [], []
        for epoch in range(2, repeats + 2):
            fresh.append(start_of(Train(width, 1), max_epoch=1))
            resumed.append(start_of(Train(width, 1), max_epoch=epoch, run_dir=run_dir, resume="must"))
            start = time.perf_counter()
            newest_complete(run_dir)
            verified.append(time.perf_counter() - start)
        print(
            f"{megabytes:>13}  {statistics.median(fresh):>14.2f}  {statistics.median(resumed):>10.2f}  "
            f"{statistics.median(verified):>35.2f}"
        )


def start_of(trainer: Any, **options: Any) -> float:
    """Return the seconds from `train()` to the first epoch."""
    begins = Begins()
    start = time.perf_counter()
    trainer.train(callbacks=[begins, *(["ModelSaver"] if "run_dir" in options else [])], steps_per_epoch=1, **options)
    return begins.time - start


if __name__ == "__main__":
    sys.exit(main())
