"""The gain and the cost of a second process: tpk beside a bare session loop on Horovod, and beside Keras.

python tests/benchmarks/processes.py
python tests/benchmarks/processes.py --models resnet20 --rounds 3 --steps 4

Each contender is a pair of processes with a thread each, started by `tpk launch`, which trains a few steps whenever it
is its turn; and another pair, in which each trains by itself. README.md, beside this file, says how to read the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import Any

import _process_contenders
import attrs
from _process_contenders import APART, COLLECTIVE, CONTENDERS, HOROVOD, KERAS, MODELS, RAW, TOGETHER
from step_overhead import cores, cpu_name, ratios, versions

REACH = ((HOROVOD, RAW, 1.03), (COLLECTIVE, RAW, 1.03), (HOROVOD, KERAS, 1.0), (COLLECTIVE, KERAS, 1.0))
RESTLESS = (RAW, HOROVOD)
"""Whose threads look for work a thousand times a second, which takes up to a third of a core for each process."""

LAUNCH = """\
import os, signal, sys, threading
from tpk.cli.main import main

def end_with_parent():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=end_with_parent, daemon=True).start()
sys.exit(main(sys.argv[1:]))
"""
"""`tpk launch`, which ends with this process, however that ends; its guard then ends everything that it started."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10, help="steps in a block (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="only these models")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="only these")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for a block, or the start, of a pair")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all timings")
    args = parser.parse_args()
    # So that the processes are ended, too.
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))
    found = versions()
    found |= {name: metadata.version(name) for name in ("horovod",) if is_installed(name)}
    print(f"machine:  {cpu_name()}, {cores()} cores, load {os.getloadavg()[0]:.1f} at the start")
    print(f"system:   {platform.system()}, Python {platform.python_version()}")
    print(f"packages: {', '.join(f'{name} {version}' for name, version in found.items())}")
    print(f"blocks:   {args.rounds} of {args.steps} steps each, in turn, after one to warm up; one thread a process")
    timings: dict[str, Any] = {}
    has_failed = False
    for model in args.models:
        results, absent = race(model, args.contenders, args.steps, args.rounds, args.timeout)
        report(model, results, absent)
        timings[model] = {name: attrs.asdict(result) for name, result in results.items()}
        has_failed |= any(absence.is_failure for absence in absent.values())
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    if args.json is not None:
        args.json.write_text(json.dumps({"packages": found, "seconds_per_step": timings}, indent=2) + "\n")
    return int(has_failed)


def is_installed(name: str) -> bool:
    return any(metadata.distributions(name=name))


# The race


@attrs.frozen
class Absence(Exception):
    """Why a contender takes no part: something that it needs is not there, or it failed."""

    reason: str
    is_failure: bool


@attrs.frozen
class Result:
    """The seconds per step of the blocks of a contender, by round.

    Attributes:
        one: one process, while no other one computes.
        apart: two at once which do not talk; the slower one.
        together: two that train one model; the slower one.
        computed: how many of these all threads of a process have computed; the mean of the two.
    """

    one: list[float] = attrs.field(factory=list)
    apart: list[float] = attrs.field(factory=list)
    together: list[float] = attrs.field(factory=list)
    computed: list[float] = attrs.field(factory=list)


def race(
    model: str, names: Sequence[str], steps: int, rounds: int, timeout: float
) -> tuple[dict[str, Result], dict[str, Absence]]:
    """Return the timings of each contender, and which of them take no part."""
    pairs: dict[tuple[str, str], Pair] = {}
    absent: dict[str, Absence] = {}
    results = {name: Result() for name in names}
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        for number, (name, relation) in enumerate((name, how) for name in names for how in (TOGETHER, APART)):
            place = Path(directory, str(number))
            place.mkdir()
            if name not in absent:
                pair = pairs[name, relation] = Pair(place, timeout, name in RESTLESS and relation == TOGETHER)
                stack.callback(pair.close)
                try:
                    pair.start([name, model, str(pair.address), str(steps), str(rounds + 1), relation])
                except Absence as absence:
                    absent[name] = absence
        for number in range(rounds + 1):
            present = [name for name in names if name not in absent]
            # In another order each time, so that none is always the one that comes after the slowest.
            for name in random.Random(number).sample(present, len(present)):
                try:
                    together = pairs[name, TOGETHER].block([0, 1])
                    apart = pairs[name, APART].block([0, 1])
                    one = pairs[name, APART].block([0])
                except Absence as absence:
                    absent[name] = absence
                    continue
                if number > 0:  # The first block is to warm up.
                    results[name].together.append(max(block["seconds"] for block in together))
                    results[name].computed.append(statistics.mean(block["computed"] for block in together))
                    results[name].apart.append(max(block["seconds"] for block in apart))
                    results[name].one.append(max(block["seconds"] for block in one))
    return {name: result for name, result in results.items() if name not in absent}, absent


class Pair:
    """The two processes of a contender.

    Args:
        place: the directory for their files, which is there.
        timeout: how long they may take to start, and for a block, in seconds.
        is_stopped_between: whether they are stopped, by SIGSTOP, when it is not their turn.
    """

    def __init__(self, place: Path, timeout: float, is_stopped_between: bool) -> None:
        self.address = place / "socket"
        self._output = place / "output.txt"
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.address))
        self._server.listen()
        self._server.settimeout(timeout)
        self._timeout = timeout
        self._is_stopped_between = is_stopped_between
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: dict[int, Any] = {}
        self._pids: list[int] = []

    def start(self, arguments: Sequence[str]) -> None:
        """Start the processes; wait until they are ready for their first block.

        Raises:
            Absence: if they cannot be started.
        """
        options = ["launch", "-n", "2", "--threads", "1", "--grace", "10", _process_contenders.__file__]
        # Horovod counts the time in which a process is stopped as one in which it does not answer.
        environment = {**os.environ, "HOROVOD_GLOO_TIMEOUT_SECONDS": "3600"}
        environment.pop("TF_CONFIG", None)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, *options, *arguments],
                cwd=self._output.parent,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        for _ in range(2):
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                raise self._failure(f"its processes have not started within {self._timeout:.0f} s") from None
            connection.settimeout(self._timeout)
            stream = connection.makefile("rw")
            message = json.loads(stream.readline())
            self._streams[message["rank"]] = stream
            self._pids.append(message["pid"])
        for rank in (0, 1):
            self._listen(rank)
        self._stop()

    def block(self, ranks: Sequence[int]) -> list[dict[str, float]]:
        """Let processes do a block of steps at the same time; return what each tells about it.

        Raises:
            Absence: if one fails.
        """
        self._continue()
        for rank in ranks:
            try:
                self._streams[rank].write("go\n")
                self._streams[rank].flush()
            except OSError as error:
                raise self._failure(str(error)) from None
        told = [self._listen(rank) for rank in ranks]
        self._stop()
        return told

    def close(self) -> None:
        """End the processes if they have not ended."""
        self._continue()
        for stream in self._streams.values():
            stream.close()
        self._server.close()
        if self._process is not None:
            if self._streams:
                # Those that have done all their blocks are about to end.
                self._wait(20.0)
            self._process.terminate()
            self._wait(20.0)
            # Its guard ends those that it has started.
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def _continue(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, signum: int) -> None:
        # These process numbers are not reused while the launcher exists, because it does not wait for the processes.
        if self._is_stopped_between and self._process is not None and self._process.poll() is None:
            for pid in self._pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)

    def _wait(self, seconds: float) -> None:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _listen(self, rank: int) -> dict[str, float]:
        """Return what a process tells of its last block."""
        try:
            line = self._streams[rank].readline()
        except TimeoutError:
            raise self._failure(f"process {rank} has not answered within {self._timeout:.0f} s") from None
        if not line:
            raise self._failure(f"process {rank} died")
        message: dict[str, Any] = json.loads(line)
        if "absent" in message:
            raise Absence(message["absent"], message["is_failure"])
        return message

    def _failure(self, reason: str) -> Absence:
        tail = self._output.read_text(errors="replace").splitlines()[-15:]
        return Absence("\n".join([reason, *tail]), is_failure=True)


# The report


def report(model: str, results: dict[str, Result], absent: dict[str, Absence]) -> None:
    batch = MODELS[model].batch
    width = max(map(len, CONTENDERS))
    heads = ("  one", "two apart", "two together", "scaling", "all-reduce, ms", "CPU, ms", f"x {RAW}")
    print(f"\n{model}, batches of {batch} in each process; images/s")
    print(f"{'':<{width}}  {'  '.join(heads)}  middle half of these")
    for name, result in results.items():
        scaling = statistics.median(ratios(result.one, result.together))
        reduces = [own - other for own, other in zip(result.together, result.apart, strict=True)]
        cells = [
            f"{batch / statistics.median(result.one):.1f}",
            f"{2 * batch / statistics.median(result.apart):.1f}",
            f"{2 * batch / statistics.median(result.together):.1f}",
            f"{scaling:.0%}",
            f"{statistics.median(reduces) * 1e3:.1f}",
            f"{statistics.median(result.computed) * 1e3:.1f}",
        ]
        if RAW in results:
            lower, middle, upper = quartiles(ratios(result.together, results[RAW].together))
            cells += [f"{middle:.3f}", f"{lower:.3f} to {upper:.3f}"]
        padded = (cell.rjust(len(head)) for cell, head in zip_longest(cells, heads, fillvalue=""))
        print(f"{name:<{width}}  {'  '.join(padded)}")
    for name, absence in absent.items():
        print(f"{name:<{width}}  {'FAILED' if absence.is_failure else 'not available here'}: {absence.reason}")
    for name, other, most in REACH:
        if name in results and other in results:
            ratio = statistics.median(ratios(results[name].together, results[other].together))
            verdict = "ok" if ratio <= most else "NOT REACHED"
            print(f"{name} / {other}, time of a step: {ratio:.3f} (reach: at most {most}) {verdict}")


def quartiles(values: Sequence[float]) -> Sequence[float]:
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else list(values) * 3


if __name__ == "__main__":
    sys.exit(main())
