"""The gain of a second tower, and the cost of a strategy, beside the same graph written by hand.

python tests/benchmarks/towers.py

Each tower has a logical CPU device and a thread, and trains a convolutional network that fills a core; so the session
of one tower has one thread, and those of two have two. Each contender is a session with one train op, and runs it a
few times whenever it is its turn; the ratios are those of the same round.
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
from tpk import layers
from tpk.strategies import ParameterServerStrategy, ReplicatedStrategy

v1 = tf.compat.v1

BATCH, SIZE, WIDTH = 32, 32, 32
ONE = "one tower, by hand"
REACH = (
    ("replicated", "2 replicates, by hand", 1.03),
    ("parameter_server", "2 sharing towers, by hand", 1.03),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=20, help="timed blocks of each (default: %(default)s)")
    args = parser.parse_args()

    load = os.getloadavg()[0]
    steps = {name: make() for name, make in CONTENDERS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(args.repeats + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(args.steps):
                step()
            if number > 0:  # The first block is to warm up.
                seconds[name].append((time.perf_counter() - start) / args.steps)

    print(
        f"{os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; Python "
        f"{platform.python_version()}, TensorFlow {tf.__version__}, NumPy {np.__version__}; {args.repeats} blocks of "
        f"{args.steps} steps each, in turn\n"
    )
    print(f"{'':<34}  images/s  x {ONE}")
    for name, times in seconds.items():
        images = BATCH * (1 if name == ONE else 2)
        speedup = statistics.median(images / BATCH * one / own for one, own in zip(seconds[ONE], times, strict=True))
        print(f"{name:<34}  {images / statistics.median(times):>8.0f}  {speedup:>6.2f}")
    print()
    for name, other, most in REACH:
        ratio = statistics.median(own / by_hand for own, by_hand in zip(seconds[name], seconds[other], strict=True))
        print(f"{name} / {other}: {ratio:.3f} (reach: at most {most}) {'ok' if ratio <= most else 'NOT REACHED'}")
    for name in ("replicated", "parameter_server"):
        speedup = statistics.median(2 * one / own for one, own in zip(seconds[ONE], seconds[name], strict=True))
        print(f"{name} x {ONE}: {speedup:.2f} (reach: at least 1.7) {'ok' if speedup >= 1.7 else 'NOT REACHED'}")
    return 0


# The model


def batch() -> list[Any]:
    rng = np.random.default_rng(0)
    image = tf.constant(rng.normal(size=(BATCH, SIZE, SIZE, 3)), tf.float32)
    # Constants would be folded away.
    return [image + v1.random_uniform([]), tf.constant(rng.integers(0, 10, BATCH))]


def cost(image: Any, label: Any) -> Any:
    x = image
    for number in range(3):
        x = layers.conv2d(x, WIDTH, 3, padding="same", activation=tf.nn.relu, name=f"conv{number}")
        x = layers.max_pooling2d(x, 2, 2)
    logits = layers.dense(layers.flatten(x), 10, name="logits")
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))


def sgd() -> Any:
    return v1.train.GradientDescentOptimizer(0.01)


def config(towers: int) -> Any:
    options = tpk.default_session_config()
    options.use_per_session_threads = True
    options.intra_op_parallelism_threads = 1
    options.inter_op_parallelism_threads = towers
    options.device_count["CPU"] = towers
    return options


def callable_of(graph: Any, train_op: Any, *more_initializers: Any, towers: int = 2) -> Callable[[], Any]:
    with graph.as_default():
        sess = v1.Session(graph=graph, config=config(towers))
        sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        sess.run(list(more_initializers))
    return sess.make_callable(train_op)  # type: ignore[no-any-return]


# The contenders


def one_tower() -> Callable[[], Any]:
    with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
        return callable_of(graph, sgd().minimize(cost(*batch())), towers=1)


def sharing_by_hand() -> Callable[[], Any]:
    with tf.Graph().as_default() as graph:
        optimizer, rows = sgd(), []
        for index in range(2):
            with tf.device(f"/cpu:{index}"), v1.variable_scope(v1.get_variable_scope(), reuse=index > 0):
                rows.append(optimizer.compute_gradients(cost(*batch())))
        with tf.device("/cpu:0"):
            means = [((one[0] + other[0]) / 2, one[1]) for one, other in zip(*rows, strict=True)]
            return callable_of(graph, optimizer.apply_gradients(means))


def replicates_by_hand() -> Callable[[], Any]:
    with tf.Graph().as_default() as graph:
        optimizer, rows, own = sgd(), [], []
        for index in range(2):
            with tf.device(f"/cpu:{index}"), v1.variable_scope(f"tower{index}"):
                value = cost(*batch())
                own.append(v1.trainable_variables(f"tower{index}"))
                rows.append([gradient for gradient, _ in optimizer.compute_gradients(value, own[-1])])
        means = []
        for number, column in enumerate(zip(*rows, strict=True)):
            with tf.device(f"/cpu:{number % 2}"):
                means.append(tf.add_n(column) / 2)
        applied = []
        for index in range(2):
            with tf.device(f"/cpu:{index}"):
                applied.append(optimizer.apply_gradients(list(zip(means, own[index], strict=True))))
        copies = [copy.assign(source).op for source, copy in zip(*own, strict=True)]
        return callable_of(graph, tf.group(*applied), *copies)


def by_strategy(strategy: Any) -> Callable[[], Any]:
    trainer = tpk.SingleCostTrainer(strategy)
    signature = [
        tf.TensorSpec([BATCH, SIZE, SIZE, 3], tf.float32, "image"),
        tf.TensorSpec([BATCH], tf.int64, "label"),
    ]
    trainer.setup_graph(signature, tpk.TensorInput(batch), cost, sgd)
    with trainer.graph.as_default():
        initializers = tpk.get_post_init_ops()
    return callable_of(trainer.graph, trainer.train_op, *initializers)


CONTENDERS: dict[str, Callable[[], Callable[[], Any]]] = {
    ONE: one_tower,
    "2 replicates, by hand": replicates_by_hand,
    "replicated": lambda: by_strategy(ReplicatedStrategy(["/cpu:0", "/cpu:1"])),
    "replicated, nothing packed": lambda: by_strategy(ReplicatedStrategy(["/cpu:0", "/cpu:1"], pack_bytes=0)),
    "replicated, all packed": lambda: by_strategy(ReplicatedStrategy(["/cpu:0", "/cpu:1"], pack_bytes=1 << 26)),
    "2 sharing towers, by hand": sharing_by_hand,
    "parameter_server": lambda: by_strategy(ParameterServerStrategy(["/cpu:0", "/cpu:1"])),
}


if __name__ == "__main__":
    sys.exit(main())
