"""What callbacks cost in steps that they do not look at: each of them beside the same training without it.

python tests/benchmarks/callbacks_cost.py
python tests/benchmarks/callbacks_cost.py --only HostMemoryTracker --repeats 60

Each contender trains the smallest of models (see step_overhead.py) in a process of its own, with one callback or none,
and does a block of steps whenever it is its turn. The training without any is there twice: what lies between these two
is noise. GPU trackers measure where there is a GPU; elsewhere they only say that there is none.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import contenders as common
from contenders import Blocks
from step_overhead import Result, conditions, do_blocks, race, ratios, report

NOTHING = "nothing"
NOISE = "nothing, again"
REACH = 1.03
"""The most that a training with a callback may take of the time of one without."""


def host_memory() -> Any:
    import tpk

    return tpk.HostMemoryTracker(interval=1.0)


def gpu_utilization() -> Any:
    import tpk

    return tpk.GPUUtilizationTracker()


def gpu_memory() -> Any:
    import tpk

    return tpk.GPUMemoryTracker()


def run_timeout() -> Any:
    import tpk

    return tpk.SessionRunTimeout(60_000)


def shell() -> Any:
    import tpk

    return tpk.InjectShell()


CALLBACKS: dict[str, Callable[[], Any] | None] = {
    NOTHING: None,
    NOISE: None,
    "HostMemoryTracker": host_memory,
    "GPUUtilizationTracker": gpu_utilization,
    "GPUMemoryTracker": gpu_memory,
    "SessionRunTimeout": run_timeout,
    "InjectShell": shell,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=30, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=CALLBACKS, metavar="NAME", help="only these callbacks")
    parser.add_argument("--show-output", action="store_true", help="let the contenders write here")
    args = parser.parse_args()
    names = list(CALLBACKS) if args.only is None else [NOTHING, NOISE, *args.only]
    load = os.getloadavg()[0]
    timings, absent = race(dict.fromkeys(names), args.steps, args.repeats, args.show_output, contend)
    about = {
        **conditions(f"{load:.1f} at the start"),
        "blocks": f"{args.repeats} of {args.steps} steps each, in turn, after one to warm up",
    }
    report(about, [Result.of(name, timings, NOTHING) for name in timings], absent, NOTHING)
    for name in timings:
        ratio = statistics.median(ratios(timings[name], timings[NOTHING]))
        if name != NOTHING:
            print(f"{name}: {ratio:.3f} (reach: at most {REACH}) {'ok' if ratio <= REACH else 'NOT REACHED'}")
    return int(any(absence.is_failure for absence in absent.values()))


def contend(
    name: str, source: Path | None, connection: Connection, steps: int, count: int, place: Path, show_output: bool
) -> None:
    """Be a contender: the main function of its process."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="2")
    make = CALLBACKS[name]
    do_blocks(lambda blocks: train(blocks, make), connection, steps, count, place, show_output)


def train(blocks: Blocks, make_callback: Callable[[], Any] | None) -> None:
    import tpk

    trainer = tpk.Trainer()
    with trainer.graph.as_default():
        trainer.train_op = common.sgd().minimize(common.cost(*common.batch()))
    trainer.train(
        callbacks=[common.tpk_clock(blocks), *([] if make_callback is None else [make_callback()])],
        steps_per_epoch=blocks.steps,
        max_epoch=blocks.count,
    )


if __name__ == "__main__":
    sys.exit(main())
