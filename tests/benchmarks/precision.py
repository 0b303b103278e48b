"""What the ops of gradients and updates cost beside a loop written by hand, in float32 and in float16.

python tests/benchmarks/precision.py

The model has 161 variables, as many as a ResNet-50, all of them small: so it is the ops of a step that count, not what
they compute. By hand there is a fixed loss scale and no check, which no CPU can come up to with a scale that is
dynamic: no update can start before all gradients are there. (A GPU is handed the updates meanwhile: `gpu.py`.) Each
contender is a session with one train op, and runs it a few times whenever it is its turn; the ratios are those of the
same round.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.graph.fetches import ops_run_for
from tpk.graph.tower_options import in_precision

v1 = tf.compat.v1

BATCH, WIDTH, LAYERS, SCALE = 8, 16, 80, 2.0**15
BY_HAND, BY_HAND_16 = "float32, by hand", "float16, by hand, fixed scale"
TPK, TPK_16, COND = "float32, tpk", "float16, tpk", "float16, tpk, update in a tf.cond"
REACH = ((TPK, BY_HAND, 1.0), (TPK_16, COND, 1.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=40, help="timed blocks of each (default: %(default)s)")
    args = parser.parse_args()

    load = os.getloadavg()[0]
    made = {name: make() for name, make in CONTENDERS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in made}
    computed: dict[str, list[float]] = {name: [] for name in made}
    for number in range(args.repeats + 1):
        for name, (step, _) in made.items():
            start, start_of_cpu = time.perf_counter(), time.process_time()
            for _ in range(args.steps):
                step()
            if number > 0:  # The first block is to warm up.
                seconds[name].append((time.perf_counter() - start) / args.steps)
                computed[name].append((time.process_time() - start_of_cpu) / args.steps)

    print(
        f"{os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; Python "
        f"{platform.python_version()}, TensorFlow {tf.__version__}, NumPy {np.__version__}; {args.repeats} blocks of "
        f"{args.steps} steps each, in turn\n"
    )
    print(f"{'':<34}  ops in a step  ms a step  x by hand  CPU, ms  x by hand")
    for name, times in seconds.items():
        by_hand = BY_HAND if name.startswith("float32") else BY_HAND_16
        print(
            f"{name:<34}  {made[name][1]:>13}  {statistics.median(times) * 1e3:>9.2f}  "
            f"{median_ratio(times, seconds[by_hand]):>9.3f}  {statistics.median(computed[name]) * 1e3:>7.2f}  "
            f"{median_ratio(computed[name], computed[by_hand]):>9.3f}"
        )
    print()
    for name, other, most in REACH:
        ratio = median_ratio(seconds[name], seconds[other])
        print(f"{name} / {other}: {ratio:.3f} (reach: at most {most}) {'ok' if ratio <= most else 'NOT REACHED'}")
    return 0


def median_ratio(times: list[float], others: list[float]) -> float:
    return statistics.median(own / other for own, other in zip(times, others, strict=True))


# The model


def batch() -> list[Any]:
    return [v1.random_uniform([BATCH, WIDTH])]


def cost(x: Any) -> Any:
    for number in range(LAYERS):
        kernel = v1.get_variable(f"kernel{number}", [WIDTH, WIDTH], initializer=v1.random_normal_initializer(0.0, 0.01))
        bias = v1.get_variable(f"bias{number}", [WIDTH], initializer=v1.zeros_initializer())
        x += tf.nn.relu(tf.matmul(x, kernel) + bias)
    gain = v1.get_variable("gain", [WIDTH], initializer=v1.ones_initializer())
    return tf.reduce_mean(tf.square(tf.cast(x * gain, tf.float32)))


def momentum() -> Any:
    return v1.train.MomentumOptimizer(1e-4, 0.9)


class UnknownMomentum(v1.train.MomentumOptimizer):  # type: ignore[misc]
    """An optimizer of which tpk does not know how to let its update run without an effect."""


Contender = tuple[Callable[[], Any], int]


def contender(graph: Any, train_op: Any) -> Contender:
    with graph.as_default():
        sess = v1.Session(graph=graph, config=tpk.default_session_config())
        sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        return sess.make_callable(train_op), len(ops_run_for(train_op))


# The contenders


def by_hand(precision: str) -> Contender:
    with tf.Graph().as_default() as graph:
        value = in_precision(cost, precision)(*batch())
        optimizer, scale = momentum(), SCALE if precision == "float16" else 1.0
        pairs = optimizer.compute_gradients(value * scale if scale != 1 else value)
        if scale != 1:
            pairs = [(gradient * (1 / scale), variable) for gradient, variable in pairs]
        return contender(graph, optimizer.apply_gradients(pairs))


def by_tpk(precision: str, make_optimizer: Callable[[], Any] = momentum) -> Contender:
    trainer = tpk.SingleCostTrainer("single", precision=precision)
    trainer.setup_graph([tf.TensorSpec([BATCH, WIDTH], tf.float32, "x")], tpk.TensorInput(batch), cost, make_optimizer)
    return contender(trainer.graph, trainer.train_op)


CONTENDERS: dict[str, Callable[[], Contender]] = {
    BY_HAND: lambda: by_hand("float32"),
    TPK: lambda: by_tpk("float32"),
    BY_HAND_16: lambda: by_hand("float16"),
    TPK_16: lambda: by_tpk("float16"),
    COND: lambda: by_tpk("float16", lambda: UnknownMomentum(1e-4, 0.9)),
}


if __name__ == "__main__":
    sys.exit(main())
