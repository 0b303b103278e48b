"""The overhead of a training step: tpk beside TensorFlow, Keras and tensorpack.

python tests/benchmarks/step_overhead.py
python tests/benchmarks/step_overhead.py --png step_overhead.png --json step_overhead.json
python tests/benchmarks/step_overhead.py --against ../before/src        # paired with another checkout of tpk
python tests/benchmarks/step_overhead.py --load 3                       # beside three processes that never rest

Each contender trains the same small linear model in a separate process, and does a block of steps whenever it is
its turn. So all of them meet the same load of the machine, and none the imports, threads, environment variables or
log handlers of another. README.md, beside this file, says how to read the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import statistics
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs
from contenders import BARE, CALLABLE, CONTENDERS, DEFAULTS, RAW, STAND_IN, TENSORPACK, UNTUNED, Blocks, contender

PACKAGES = ("tpk", "tensorflow", "tensorflow-cpu", "numpy", "keras", "tensorpack", "pluggy")
BEFORE = " (before)"
REACH = ((DEFAULTS, RAW, 0.6), (BARE, CALLABLE, 1.15), (STAND_IN, DEFAULTS, 1.1), (STAND_IN, TENSORPACK, 0.6))
REACH_UNDER_LOAD = ((DEFAULTS, UNTUNED, 1.15), (DEFAULTS, CALLABLE, 1.15), (BARE, CALLABLE, 1.15))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=30, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="NAME", help="only these contenders")
    parser.add_argument("--against", type=Path, metavar="SRC", help="also the tpk of another checkout: its src folder")
    parser.add_argument(
        "--load", type=int, default=0, metavar="N", help="processes that compute all the time beside it"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the table (needs matplotlib)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all timings")
    parser.add_argument("--show-output", action="store_true", help="let the contenders write, and draw bars, here")
    args = parser.parse_args()

    names = list(CONTENDERS) if args.only is None else [RAW, *(name for name in args.only if name != RAW)]
    sources = dict.fromkeys(names)
    if args.against is not None:
        sources.update(
            {f"{name}{BEFORE}": args.against.resolve(strict=True) for name in names if name in (BARE, DEFAULTS)}
        )
    load = os.getloadavg()[0]
    with made_load(args.load):
        timings, absent = race(sources, args.steps, args.repeats, args.show_output, contend)
    if RAW not in timings:
        sys.exit(f"{RAW}, to which all are compared, takes no part: {absent[RAW].reason}")
    results = [Result.of(name, timings) for name in timings]
    made = f", and {args.load} processes that compute all the time" if args.load else ""
    about = {
        **conditions(f"{load:.1f} at the start{made}"),
        "blocks": f"{args.repeats} of {args.steps} steps each, in turn, after one to warm up",
    }
    report(about, results, absent)
    against = [(name.removesuffix(BEFORE), name, 1.03) for name in sources if name.endswith(BEFORE)]
    for name, other, most in [*(REACH_UNDER_LOAD if args.load else REACH), *against]:
        if name in timings and other in timings:
            ratio = statistics.median(ratios(timings[name], timings[other]))
            print(f"{name} / {other}: {ratio:.2f} (reach: at most {most}) {'ok' if ratio <= most else 'NOT REACHED'}")
    if args.json is not None:
        reasons = {name: absence.reason for name, absence in absent.items()}
        args.json.write_text(json.dumps({"about": about, "us_per_step": timings, "absent": reasons}, indent=2) + "\n")
    if args.png is not None:
        draw(args.png, about, results)
    return int(any(absence.is_failure for absence in absent.values()))


# The load


@contextmanager
def made_load(count: int) -> Iterator[None]:
    """Keep the machine busy by so many processes, each with a thread that never waits."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=spin, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def spin(parent: int) -> None:
    """Compute until the parent process is gone, or until this process is killed."""
    while os.getppid() == parent:
        sum(range(100_000))


# The race


@attrs.frozen
class Absence:
    """Why a contender takes no part: something that it needs is not there, or it failed."""

    reason: str
    is_failure: bool


def race(
    sources: Mapping[str, Path | None],
    steps: int,
    repeats: int,
    show_output: bool,
    contend: Callable[[str, Path | None, Connection, int, int, Path, bool], None],
) -> tuple[dict[str, list[float]], dict[str, Absence]]:
    """Return the µs per step of each block of each contender, and which contenders take no part.

    `sources` has the names of the contenders, and where they take tpk from, if it is not the installed one. The main
    function of their processes is `contend`.
    """
    names = list(sources)
    context = multiprocessing.get_context("spawn")
    timings: dict[str, list[float]] = {}
    absent: dict[str, Absence] = {}
    with tempfile.TemporaryDirectory() as directory:
        connections, processes = {}, []
        for number, name in enumerate(names):
            place = Path(directory, str(number))
            place.mkdir()
            connections[name], theirs = context.Pipe()
            arguments = (name, sources[name], theirs, steps, repeats + 1, place, show_output)
            processes.append(context.Process(target=contend, args=arguments, daemon=True))
            processes[-1].start()
            theirs.close()
            said = listen(connections[name])
            if isinstance(said, Absence):
                absent[name] = said
        for number in range(repeats + 1):
            present = [name for name in names if name not in absent]
            # In another order each time, so that none is always the one that comes after the slowest.
            for name in random.Random(number).sample(present, len(present)):
                connections[name].send("go")
                said = listen(connections[name])
                if isinstance(said, Absence):
                    absent[name] = said
                    timings.pop(name, None)
                elif number > 0:  # The first block is to warm up.
                    timings.setdefault(name, []).append(said)
        for process in processes:
            process.join()
    return {name: timings[name] for name in names if name in timings}, absent


def listen(connection: Connection) -> Any:
    """Return what a contender says when it is ready for its next block."""
    try:
        return connection.recv()
    except EOFError:
        return Absence("its process died", is_failure=True)


def contend(
    name: str, source: Path | None, connection: Connection, steps: int, count: int, place: Path, show_output: bool
) -> None:
    """Be the contender `name`: the main function of its process."""
    if source is not None:
        sys.path.insert(0, str(source))
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    do_blocks(contender(name.removesuffix(BEFORE)), connection, steps, count, place, show_output)


def do_blocks(
    compete: Callable[[Blocks], None], connection: Connection, steps: int, count: int, place: Path, show_output: bool
) -> None:
    """Let a contender do its blocks in the directory `place`; tell the parent if it cannot."""
    os.chdir(place)
    if not show_output:
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
    blocks = Blocks(connection, steps, count)
    try:
        compete(blocks)
        connection.send(blocks.last)
    except ImportError as error:
        connection.send(Absence(str(error), is_failure=False))
    except Exception:
        connection.send(Absence(traceback.format_exc(), is_failure=True))


# The report


@attrs.frozen
class Result:
    """How a contender did: µs per step, and that in relation to a baseline in the same round, with its quartiles."""

    name: str
    us_per_step: float
    ratio: float
    quartiles: tuple[float, float]

    @classmethod
    def of(cls, name: str, timings: dict[str, list[float]], baseline: str = RAW) -> Result:
        relative = ratios(timings[name], timings[baseline])
        lower, _, upper = statistics.quantiles(relative, n=4, method="inclusive") if len(relative) > 1 else relative * 3
        return cls(name, statistics.median(timings[name]), statistics.median(relative), (lower, upper))


def ratios(timings: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(timings, others, strict=True)]


def report(
    about: dict[str, str], results: Sequence[Result], absent: dict[str, Absence], baseline: str = "Session.run"
) -> None:
    for key, value in about.items():
        print(f"{key + ':':<10}{value}")
    width = max(len(name) for name in (*absent, *(result.name for result in results)))
    print(f"\n{'':<{width}}  µs per step  x {baseline}  middle half")
    for result in results:
        lower, upper = result.quartiles
        print(
            f"{result.name:<{width}}  {result.us_per_step:>11.1f}  {result.ratio:>{len(baseline) + 2}.3f}  "
            f"{lower:>5.3f} to {upper:.3f}"
        )
    for name, absence in absent.items():
        print(f"{name:<{width}}  {'FAILED' if absence.is_failure else 'not available here'}: {absence.reason}")
    print()


def draw(path: Path, about: dict[str, str], results: Sequence[Result]) -> None:
    """Draw the ratios as bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(results) + 1.6), layout="constrained")
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":", zorder=0)
    bars = axes.barh(
        [f"{result.name}   {result.us_per_step:.0f} µs" for result in results],
        [result.ratio for result in results],
        color=["tab:blue" if result.name.startswith("tpk") else "tab:gray" for result in results],
    )
    axes.bar_label(bars, fmt="%.2f", padding=4)
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"time per step, as a multiple of {RAW}")
    axes.set_title("\n".join((about["machine"], about["system"], about["packages"])), fontsize=7)
    figure.savefig(path, dpi=150)


def conditions(load: str) -> dict[str, str]:
    """Return on what is measured; `load` says how busy the machine is."""
    return {
        "machine": f"{cpu_name()}, {cores()} cores, load {load}",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
