"""The cost of a step with tpk_estimator, next to TensorFlow's own Estimator on the same TensorFlow.

python tests/benchmarks/estimator_step.py

Both train the linear model of `step_overhead.py` on a dataset of one batch, with the default `RunConfig` and a session
hook that counts the steps, and take turns, a block of steps each. It needs TensorFlow 2.15, the last version with an
Estimator.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from contenders import BATCH, FEATURES, Blocks, cost, sgd
from step_overhead import Result, conditions, do_blocks, race, ratios, report

THEIRS, OURS = "tensorflow_estimator", "tpk_estimator"
REACH = 0.6


def train(package: str, blocks: Blocks) -> None:
    """Train the linear model on a dataset; a session hook of the user is the clock."""
    import tensorflow as tf

    estimator: Any = tf.estimator if package == THEIRS else importlib.import_module(package)
    v1 = tf.compat.v1

    def input_fn() -> Any:
        data = np.random.default_rng(0).normal(size=[BATCH, FEATURES + 1]).astype(np.float32)
        return tf.data.Dataset.from_tensors((data[:, 1:], data[:, :1])).repeat()

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = cost(features, labels)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=sgd().minimize(loss, v1.train.get_global_step()))

    class Clock(v1.train.SessionRunHook):
        def __init__(self) -> None:
            self.done = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            number, position = divmod(self.done, blocks.steps)
            self.done += 1
            if position == 0 and number > 0:
                blocks.end()
            if position == 0 and number < blocks.count:
                blocks.begin()

    trained = estimator.Estimator(model_fn, "model", estimator.RunConfig())
    trained.train(input_fn, [Clock()], steps=blocks.steps * blocks.count + 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=20, help="timed blocks of each (default: %(default)s)")
    args = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    load = os.getloadavg()[0]
    timings, absent = race(dict.fromkeys((THEIRS, OURS)), args.steps, args.repeats, False, contend)
    for name, absence in absent.items():
        print(f"{name}: {absence.reason}")
    if absent:
        return int(any(absence.is_failure for absence in absent.values()))
    results = [Result.of(name, timings, THEIRS) for name in (THEIRS, OURS)]
    report(conditions(f"{load:.1f} at the start"), results, absent, "Estimator")
    ratio = statistics.median(ratios(timings[OURS], timings[THEIRS]))
    print(f"{OURS} / {THEIRS}: {ratio:.2f} (reach: at most {REACH}) {'ok' if ratio <= REACH else 'NOT REACHED'}")
    return 0


def contend(
    name: str, source: Path | None, connection: Connection, steps: int, count: int, place: Path, show_output: bool
) -> None:
    """Be the contender `name`: the main function of its process."""
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    do_blocks(partial(train, name), connection, steps, count, place, show_output)


if __name__ == "__main__":
    sys.exit(main())
