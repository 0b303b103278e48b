"""What an evaluation costs besides the model's own arithmetic: InferenceRunner beside a loop written by hand.

python tests/benchmarks/evaluation.py
python tests/benchmarks/evaluation.py --cpu

The model, the batches and the session are the same for all: the linear model of contenders.py, with inference towers in
the graph of one trainer. So what differs is how a pass over the data is made. README.md, beside this file, says how to
read the table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from contenders import BATCH, FEATURES, cost, sgd, signature
from step_overhead import conditions, ratios

FEED, QUEUE = "callable, fed by hand", "callable, from a queue"
SESSION_RUN = "Session.run, fed by hand"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1000, help="batches in a pass (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=20, help="timed passes of each (default: %(default)s)")
    parser.add_argument("--cpu", action="store_true", help="count the CPU time of the main thread only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all timings")
    args = parser.parse_args()

    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    load = os.getloadavg()[0]
    timings: dict[str, list[float]] = {}
    measure(args.batches, args.repeats, time.thread_time if args.cpu else time.perf_counter, timings)
    about = {
        **conditions(f"{load:.1f} at the start"),
        "clock": "CPU time of the main thread" if args.cpu else "time",
        "passes": f"{args.repeats} of {args.batches} batches each, in turn, after one to warm up",
    }
    report(about, timings)
    if args.json is not None:
        args.json.write_text(json.dumps({"about": about, "us_per_batch": timings}, indent=2) + "\n")
    return 0


def measure(batches: int, repeats: int, clock: Callable[[], float], timings: dict[str, list[float]]) -> None:
    """Fill `timings` with the µs per batch of each pass of each contender."""
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    import tpk
    from tpk.callbacks.inference.inferencers import MetricInferencer

    rng = np.random.default_rng(0)
    shapes = ([BATCH, FEATURES], [BATCH, 1])
    data = [[rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(batches)]

    def scalars(prefix: str) -> Any:
        return tpk.ScalarStats("cost", prefix=prefix)

    mean = tf.compat.v1.metrics.mean
    runners = {
        "InferenceRunner, FeedInput": tpk.InferenceRunner(data, scalars("feed")),
        "InferenceRunner, QueueInput": tpk.InferenceRunner(tpk.QueueInput(data), scalars("queue")),
        "InferenceRunner, QueueInput, MetricInferencer": tpk.InferenceRunner(
            tpk.QueueInput(data), MetricInferencer(mean, {"values": "cost"})
        ),
        "InferenceRunner, 2 devices": tpk.InferenceRunner(data, scalars("parallel"), devices=2),
    }

    class Race(tpk.Callback):
        """Builds the towers of the loops by hand, and lets all make their passes before the training starts."""

        def setup_graph(self, trainer: Any) -> None:
            self.fed = trainer.build_inference_tower("Fed")
            self.queue = tpk.QueueInput(data, infinite=False)
            self.queue.setup(trainer.tower_func.input_signature)
            self.queued = trainer.build_inference_tower("Queued", self.queue.get_input_tensors())

        @tpk.hookimpl(trylast=True)
        def before_train(self, trainer: Any) -> None:
            contenders: dict[str, Callable[[], Any]] = {
                **self.loops(trainer.sess),
                **{name: partial(runner.trigger, trainer) for name, runner in runners.items()},
            }
            for number in range(repeats + 1):
                for name in random.Random(number).sample(list(contenders), len(contenders)):
                    start = clock()
                    contenders[name]()
                    took = (clock() - start) / batches * 1e6
                    if number > 0:  # The first pass is to warm up.
                        timings.setdefault(name, []).append(took)

        def after_train(self, trainer: Any) -> None:
            self.queue.stop()

        def loops(self, sess: Any) -> dict[str, Callable[[], Any]]:
            """The loops by hand."""
            fed_cost, inputs = self.fed.get_tensor("cost"), self.fed.inputs
            # `make_callable` with a `feed_list` is a `Session.run`; this is not.
            options = config_pb2.CallableOptions(feed=[each.name for each in inputs], fetch=[fed_cost.name])
            call = sess._make_callable_from_options(options)
            take = sess.make_callable(self.queued.get_tensor("cost"))

            def by_callable() -> float:
                return float(np.mean([call(*batch)[0] for batch in data]))

            def by_session() -> float:
                return float(np.mean([sess.run(fed_cost, dict(zip(inputs, batch, strict=True))) for batch in data]))

            def by_queue() -> float:
                self.queue.reset_state()
                return float(np.mean([take() for _ in data]))

            self.queue.start(sess)
            return {FEED: by_callable, SESSION_RUN: by_session, QUEUE: by_queue}

    trainer = tpk.SingleCostTrainer()
    trainer.setup_graph(signature(), tpk.FeedInput(data), cost, sgd)
    trainer.train(callbacks=[*runners.values(), Race()], steps_per_epoch=1, max_epoch=0)


def report(about: dict[str, str], timings: dict[str, Sequence[float]]) -> None:
    for key, value in about.items():
        print(f"{key + ':':<10}{value}")
    width = max(map(len, timings))
    print(f"\n{'':<{width}}  µs per batch  x by hand  middle half")
    for name, times in timings.items():
        base = QUEUE if "queue" in name.lower() else FEED
        relative = ratios(times, timings[base])
        lower, _, upper = statistics.quantiles(relative, n=4, method="inclusive") if len(relative) > 1 else relative * 3
        middle = statistics.median(relative)
        print(f"{name:<{width}}  {statistics.median(times):>12.1f}  {middle:>9.2f}  {lower:>5.2f} to {upper:.2f}")


if __name__ == "__main__":
    sys.exit(main())
