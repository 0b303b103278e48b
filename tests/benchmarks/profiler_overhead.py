"""What callbacks that look at some steps cost in the steps that they do not look at.

python tests/benchmarks/profiler_overhead.py
python tests/benchmarks/profiler_overhead.py --repeats 50

Each contender trains in a process of its own, and does a block of steps whenever it is its turn; see step_overhead.py.
No step that is timed is looked at: the steps that would be come after the last one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from contenders import DEFAULTS, Blocks, tpk_defaults
from step_overhead import Result, conditions, do_blocks, race, ratios, report

NEVER = 10**9
REACH = 1.02


def profiler() -> list[Any]:
    import tpk

    return [tpk.GraphProfiler(steps=NEVER)]


def tensors() -> list[Any]:
    import tpk

    return [tpk.DumpTensors(["x", "cost"], every_k_steps=NEVER)]


def gradients() -> list[Any]:
    import tpk

    return [tpk.GradientHistogram(every_k_steps=NEVER)]


def nothing() -> list[Any]:
    import tpk

    class DoesNothing(tpk.Callback):
        def before_run(self, run_context: Any) -> None:
            return None

        def after_run(self, run_context: Any, run_values: Any) -> None:
            return None

    return [DoesNothing()]


LOOKING: dict[str, Callable[[], list[Any]]] = {
    "and one whose before_run and after_run do nothing": nothing,
    "and GraphProfiler": profiler,
    "and DumpTensors": tensors,
    "and GradientHistogram": gradients,
}
CONTENDERS: dict[str, Callable[[Blocks], None]] = {
    DEFAULTS: tpk_defaults,
    **{name: partial(tpk_defaults, more_callbacks=make) for name, make in LOOKING.items()},
}


def contend(
    name: str, source: Path | None, connection: Any, steps: int, count: int, place: Path, show_output: bool
) -> None:
    """Be the contender `name`: the main function of its process."""
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    do_blocks(CONTENDERS[name], connection, steps, count, place, show_output)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=250, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--show-output", action="store_true", help="let the contenders write here")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    timings, absent = race(dict.fromkeys(CONTENDERS), args.steps, args.repeats, args.show_output, contend)
    about = {
        **conditions(f"{load:.1f} at the start"),
        "blocks": f"{args.repeats} of {args.steps} steps each, in turn, after one to warm up",
    }
    report(about, [Result.of(name, timings, DEFAULTS) for name in timings], absent, DEFAULTS)
    for name in LOOKING:
        if name in timings:
            ratio = statistics.median(ratios(timings[name], timings[DEFAULTS]))
            print(f"{name}: {ratio:.3f} (reach: at most {REACH}) {'ok' if ratio <= REACH else 'NOT REACHED'}")
    return int(any(absence.is_failure for absence in absent.values()))


if __name__ == "__main__":
    sys.exit(main())
