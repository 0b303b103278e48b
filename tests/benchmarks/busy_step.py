"""The cost of a step on a busy machine, beside TensorFlow's callable of the same train op in the same session.

python tests/benchmarks/busy_step.py --load 3

All take turns in one process, in blocks of some 10 ms: so a load that comes and goes meets them alike, and none of them
waits in the background. See README.md, beside this file.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import contenders as common
from step_overhead import Result, conditions, made_load, ratios, report

OWN = "Session.make_callable, caller's thread"
REACH = ((common.DEFAULTS, 1.15), (common.BARE, 1.15))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=100, help="timed blocks of each (default: %(default)s)")
    parser.add_argument(
        "--load", type=int, default=0, metavar="N", help="processes that compute all the time beside it"
    )
    args = parser.parse_args()
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    before = os.getloadavg()[0]
    with made_load(args.load):
        for name, train in TRAININGS.items():
            with tempfile.TemporaryDirectory() as place:
                timings = compare(name, partial(train, Path(place)), args.steps, args.repeats)
            made = f", and {args.load} processes that compute all the time" if args.load else ""
            about = {
                **conditions(f"{before:.1f} to {os.getloadavg()[0]:.1f}{made}"),
                "blocks": f"{args.repeats} of {args.steps} steps each, in turn",
            }
            results = [Result.of(each, timings, common.CALLABLE) for each in timings]
            report(about, results, {}, common.CALLABLE)
            for own, most in REACH:
                if own in timings:
                    ratio = statistics.median(ratios(timings[own], timings[common.CALLABLE]))
                    print(f"{own}: {ratio:.2f} (reach: at most {most}) {'ok' if ratio <= most else 'NOT REACHED'}\n")


def compare(name: str, train: Callable[[Any, int, int], None], steps: int, repeats: int) -> dict[str, list[float]]:
    """Return the µs per step of the blocks of a training, and of the callables that take turns with it."""
    import tpk

    timings: dict[str, list[float]] = {common.CALLABLE: [], OWN: [], name: []}
    callables: dict[str, Callable[[], Any]] = {}
    began = 0.0

    def block(step: Callable[[], Any]) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return (time.perf_counter() - start) / steps * 1e6

    def begin(self: Any) -> None:
        nonlocal began
        trainer = self.trainer
        if not callables:
            callables[common.CALLABLE] = trainer.sess.make_callable(trainer.train_op)
            callables[OWN] = in_callers_thread(trainer.sess, trainer.train_op)
        # The first two epochs are to warm up: in them, a step settles on the threads that make it.
        for each in random.sample(list(callables), len(callables)):
            seconds = block(callables[each])
            if trainer.epoch_num > 2:
                timings[each].append(seconds)
        began = time.perf_counter()

    def end(self: Any) -> None:
        if self.trainer.epoch_num > 2:
            timings[name].append((time.perf_counter() - began) / steps * 1e6)

    train(tpk.CallbackFactory(before_epoch=begin, after_epoch=end), steps, repeats + 2)
    return timings


def in_callers_thread(sess: Any, op: Any) -> Callable[[], Any]:
    from tensorflow.core.protobuf import config_pb2

    options = config_pb2.CallableOptions(target=[op.name])
    options.run_options.inter_op_thread_pool = -1
    step: Callable[[], Any] = sess._make_callable_from_options(options)
    return step


def bare(place: Path, clock: Any, steps: int, epochs: int) -> None:
    import tpk

    trainer = tpk.Trainer()
    with trainer.graph.as_default():
        trainer.train_op = common.sgd().minimize(common.cost(*common.batch()))
    trainer.train(callbacks=[clock], steps_per_epoch=steps, max_epoch=epochs)


def defaults(place: Path, clock: Any, steps: int, epochs: int) -> None:
    import tpk

    def summarized(x: Any, y: Any) -> Any:
        value = common.cost(x, y)
        tpk.add_moving_summary(value)
        return value

    trainer = tpk.SimpleTrainer()
    trainer.setup_graph(common.signature(), tpk.TensorInput(common.batch), summarized, common.sgd)
    trainer.train_with_defaults(
        callbacks=[clock], steps_per_epoch=steps, max_epoch=epochs, run_dir=place / "run", monitors=["JSONWriter"]
    )


TRAININGS: dict[str, Callable[[Path, Any, int, int], None]] = {common.BARE: bare, common.DEFAULTS: defaults}


if __name__ == "__main__":
    main()
