"""How fast batches are delivered into steps of a graph.

python tests/benchmarks/data_delivered.py

Every step takes one element of the batch, so that nothing is measured but the delivery. The batches are arrays of this
process, one and the same again and again; the aligned ones start on a multiple of 64 bytes. The baseline is the loop
that everybody writes: `sess.run(op, feed_dict={placeholder: batch})`.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

import tpk
from tpk.tower import TrainTowerContext

v1 = tf.compat.v1

FEED_DICT = "feed_dict"
BARE_QUEUE = "a queue and its thread, by hand"
SHAPES = {"small": (32, 8, 8, 1), "large": (32, 224, 224, 3)}
STEPS = {"small": 1000, "large": 60}
READ_AHEAD = 60
"""Steps before the clock starts: more than any queue holds from the pause before."""
REACH = (
    ("tpk FeedInput", FEED_DICT, 4.0),
    ("tpk QueueInput", FEED_DICT, 3.0),
    ("tpk QueueInput", BARE_QUEUE, 0.91),
)

Step = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--size", nargs="+", choices=SHAPES, default=list(SHAPES), help="only these (default: all)")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="NAME", help="only these contenders")
    args = parser.parse_args()
    names = list(CONTENDERS) if args.only is None else [FEED_DICT, *args.only]
    for size in args.size:
        for alignment in ("aligned", "unaligned") if size == "large" else ("aligned",):
            compare(size, alignment, args.repeats, names)
    sys.stdout.flush()
    os._exit(0)  # Not every contender ends the thread that fills its queue.


def compare(size: str, alignment: str, repeats: int, names: Sequence[str]) -> None:
    load = os.getloadavg()[0]
    batch = make_batch(SHAPES[size], alignment)
    contenders: dict[str, Step] = {}
    missing = []
    for name in names:
        try:
            contenders[name] = CONTENDERS[name](batch)
        except ImportError as error:
            missing.append(f"{name} is not available here: {error}")
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for number in range(repeats + 1):
        random.shuffle(order)
        for name in order:
            step = contenders[name]
            for _ in range(READ_AHEAD):
                step()
            start = time.perf_counter()
            for _ in range(STEPS[size]):
                step()
            if number > 0:
                seconds[name].append((time.perf_counter() - start) / STEPS[size])

    print(
        f"\n{size}, {alignment}: float32 batches of {'x'.join(map(str, batch.shape))}, {batch.nbytes / 1e6:.3g} MB; "
        f"{os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; Python "
        f"{platform.python_version()}, TensorFlow {tf.__version__}, NumPy {np.__version__}; {repeats} blocks of "
        f"{STEPS[size]} steps, in turn\n"
    )
    print(f"{'':<42}  µs per step  x {FEED_DICT}")
    for name, own in seconds.items():
        print(f"{name:<42}  {statistics.median(own) * 1e6:>11.0f}  {speedup(own, seconds[FEED_DICT]):>8.2f}")
    print(*missing, sep="\n")
    if size == "small":
        for name, other, least in REACH:
            if name not in seconds or other not in seconds:
                continue
            reached = speedup(seconds[name], seconds[other])
            verdict = "ok" if reached >= least else "NOT REACHED"
            print(f"{name} x {other}: {reached:.2f} (reach: at least {least}) {verdict}")


def speedup(own: list[float], baseline: list[float]) -> float:
    """Return the median of how many times as fast as the baseline it was in the same round."""
    return statistics.median(other / mine for mine, other in zip(own, baseline, strict=True))


def make_batch(shape: tuple[int, ...], alignment: str) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    offset = 0 if alignment == "aligned" else 4  # in numbers of 4 bytes
    batch = tpk.aligned_empty((count + 16,), np.float32)[offset : offset + count].reshape(shape)
    batch[...] = 1.0
    return batch


# The contenders


def use(batch: Any) -> Any:
    """Take one element, as an operation that fetches nothing."""
    return tf.reshape(batch, [-1])[0].op


def session(graph: Any) -> Any:
    return v1.Session(graph=graph, config=tpk.default_session_config())


def placeholder_of(batch: np.ndarray[Any, Any]) -> Any:
    return v1.placeholder(tf.float32, [None, *batch.shape[1:]])


def feed_dict(batch: np.ndarray[Any, Any]) -> Step:
    with tf.Graph().as_default() as graph:
        placeholder = placeholder_of(batch)
        op = use(placeholder)
        sess = session(graph)
    return lambda: sess.run(op, feed_dict={placeholder: batch})


def callable_with_feed_list(batch: np.ndarray[Any, Any]) -> Step:
    with tf.Graph().as_default() as graph:
        placeholder = placeholder_of(batch)
        run = session(graph).make_callable(use(placeholder), feed_list=[placeholder])
    return lambda: run(batch)


def bare_queue(batch: np.ndarray[Any, Any]) -> Step:
    """A `FIFOQueue` that a thread fills, all of it compiled: nothing is checked, copied, counted or ever stopped."""
    with tf.Graph().as_default() as graph:
        placeholder = placeholder_of(batch)
        queue = tf.queue.FIFOQueue(50, [tf.float32])
        enqueue = queue.enqueue([placeholder])
        taken = queue.dequeue()
        taken.set_shape(placeholder.shape)
        op = use(taken)
        sess = session(graph)
    put = sess._make_callable_from_options(config_pb2.CallableOptions(feed=[placeholder.name], target=[enqueue.name]))

    def fill() -> None:
        while True:
            put(batch)

    threading.Thread(target=fill, daemon=True).start()
    take = config_pb2.CallableOptions(target=[op.name])
    step: Step = sess._make_callable_from_options(take)
    return step


def tf_data(batch: np.ndarray[Any, Any]) -> Step:
    """`tf.data.Dataset.from_generator`, with one batch prefetched."""

    def generate() -> Iterator[Any]:
        while True:
            yield batch

    with tf.Graph().as_default() as graph:
        spec = tf.TensorSpec([None, *batch.shape[1:]], tf.float32)
        dataset = tf.data.Dataset.from_generator(generate, output_signature=spec).prefetch(1)
        iterator = v1.data.make_initializable_iterator(dataset)
        op = use(iterator.get_next())
        sess = session(graph)
        sess.run(iterator.initializer)
    return sess.make_callable(op)  # type: ignore[no-any-return]


def tensorpack_queue(batch: np.ndarray[Any, Any]) -> Step:
    from tensorpack.dataflow import DataFlow
    from tensorpack.input_source import QueueInput

    class ForEver(DataFlow):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[Any]]:
            while True:
                yield [batch]

    with tf.Graph().as_default() as graph:
        source = QueueInput(ForEver())
        # The threads and callbacks of its trainer are left out: only the queue and what fills it is compared.
        source.setup([tf.TensorSpec([None, *batch.shape[1:]], tf.float32, "batch")])
        op = use(source.get_input_tensors()[0])
        sess = session(graph)
    with sess.as_default():
        source.thread.start()
    return sess.make_callable(op)  # type: ignore[no-any-return]


class Deliver(tpk.Trainer):
    """Its steps take a batch, and nothing else."""

    def __init__(self, source: tpk.InputSource, batch: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self.starting_epoch = 1
        with self.graph.as_default():
            for callback in source.setup([tf.TensorSpec([None, *batch.shape[1:]], tf.float32, "batch")]):
                self.register_callback(callback)
            with TrainTowerContext():
                self.train_op = use(source.get_input_tensors()[0])


def of_tpk(
    make: Callable[[Any], tpk.InputSource], refills_arrays: bool = True
) -> Callable[[np.ndarray[Any, Any]], Step]:
    """Return what makes the step of a trainer with this input, ready before its first epoch."""

    def contender(batch: np.ndarray[Any, Any]) -> Step:
        def generate() -> Iterator[list[Any]]:
            while True:
                yield [batch]

        flow = tpk.DataFromGenerator(generate)
        flow.refills_arrays = refills_arrays
        trainer = Deliver(make(flow), batch)
        trainer.setup(session_creator=tpk.NewSessionCreator())
        with trainer.graph.as_default(), trainer.sess.as_default():
            trainer.hooks.hook.before_train(trainer=trainer)
        return trainer.run_step

    return contender


CONTENDERS: dict[str, Callable[[np.ndarray[Any, Any]], Step]] = {
    FEED_DICT: feed_dict,
    "Session.make_callable with a feed_list": callable_with_feed_list,
    BARE_QUEUE: bare_queue,
    "tf.data.Dataset.from_generator": tf_data,
    "tensorpack QueueInput": tensorpack_queue,
    "tpk FeedInput": of_tpk(tpk.FeedInput),
    "tpk QueueInput": of_tpk(tpk.QueueInput),
    "tpk TFDatasetInput, of a dataflow": of_tpk(tpk.TFDatasetInput),
    "tpk FeedInput, refills_arrays=False": of_tpk(tpk.FeedInput, refills_arrays=False),
    "tpk QueueInput, refills_arrays=False": of_tpk(tpk.QueueInput, refills_arrays=False),
}

if __name__ == "__main__":
    main()
