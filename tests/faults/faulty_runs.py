"""Trainings that are killed by somebody else, started by a zygote, and what is found of them afterwards."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from directory_events import directory_events
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

HERE = Path(__file__).parent
TOKEN = "TPK_FAULTS_TOKEN"
LONGEST = 150.0
"""Seconds that an attempt may take at most, also on a machine that has much else to do."""


class TooLong(AssertionError):
    """An attempt hangs."""


@attrs.frozen
class After:
    """The moment so many seconds after the start."""

    seconds: float


@attrs.frozen
class OnChange:
    """The moment after so many changes to files of the `run_dir`, and so many seconds.

    Attributes:
        count: how many changes.
        seconds: how long after the last of them.
        prefixes: what the names of these files begin with.
    """

    count: int
    seconds: float = 0.0
    prefixes: tuple[str, ...] = (".writing-", "model-", "state-", "checkpoint", "min-")


Moment = After | OnChange | None


@attrs.frozen
class Outcome:
    """What an attempt left.

    Attributes:
        status: as `subprocess.Popen.returncode` has it.
        said: the lines that the training said.
        signalled: whether the signal was sent while the process was there.
        log: all that it wrote to its terminal.
        seconds: how long it took.
    """

    status: int
    said: list[str]
    signalled: bool
    log: str = attrs.field(repr=False)
    seconds: float

    @property
    def steps(self) -> list[int]:
        """The steps that it made."""
        return [int(line) for line in self.said if line.isdigit()]


class Run:
    """A process that trains.

    Args:
        zygote: its parent.
        pid: its process id, which stays its own until it is reaped.
        log: the file of its output.
    """

    def __init__(self, zygote: Zygote, pid: int, log: Path) -> None:
        self.pid = pid
        self._zygote = zygote
        self._log = log
        self._descriptor = os.pidfd_open(pid)
        self._started = time.monotonic()
        self.signalled = False

    def fileno(self) -> int:
        return self._descriptor

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; return whether it has ended."""
        return bool(select.select([self], [], [], seconds)[0])

    def wait_to_say(self, what: str) -> None:
        """Wait until it has said this."""
        deadline = time.monotonic() + LONGEST
        while what not in self.said():
            if self.wait(0.02) or time.monotonic() > deadline:
                raise TooLong(f"never said {what!r}:\n{self._log.read_text()[-3000:]}")

    def said(self) -> list[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line for line in lines if line.isdigit() or line in ("began", "ending", "ended")]

    def send(self, signum: int) -> None:
        """Send it a signal, if it is still there."""
        if not self.wait(0):
            signal.pidfd_send_signal(self._descriptor, signum)
            self.signalled = True

    def end(self) -> Outcome:
        """Wait for its end, however long that may take at most, and return how it was.

        Raises:
            TooLong: it had to be killed.
        """
        in_time = self.wait(LONGEST)
        if not in_time:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        status = self._zygote.ask({"reap": self.pid})
        os.close(self._descriptor)
        log = self._log.read_text()
        if not in_time:
            raise TooLong(f"killed after {LONGEST:g} s:\n{log[-3000:]}")
        return Outcome(status, self.said(), self.signalled, log, time.monotonic() - self._started)


class Zygote:
    """Starts trainings.

    Args:
        directory: where logs and temporary files go.
    """

    def __init__(self, directory: Path) -> None:
        self._logs = directory / "logs"
        self.temporary = directory / "temporary"
        self._logs.mkdir()
        self.temporary.mkdir()
        self._count = 0
        self._token = f"{os.getpid()}-{time.monotonic_ns()}"
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, TOKEN: self._token, "TMPDIR": str(self.temporary)},
        )

    def start(self, run_dir: Path, powerless: bool = False, **scenario: Any) -> Run:
        """Start a training."""
        run_dir.mkdir(parents=True, exist_ok=True)
        self._count += 1
        log = self._logs / f"{self._count}.txt"
        pid = self.ask({"start": [str(run_dir), scenario], "log": str(log), "powerless": powerless})
        return Run(self, pid, log)

    def attempt(self, run_dir: Path, moment: Moment, signum: int = signal.SIGKILL, **scenario: Any) -> Outcome:
        """Train, and send a signal at a moment; return how it ended."""
        run_dir.mkdir(parents=True, exist_ok=True)
        with directory_events(run_dir) as events:
            run = self.start(run_dir, **scenario)
            if isinstance(moment, After):
                run.wait(moment.seconds)
            elif moment is not None:
                left, deadline = moment.count, time.monotonic() + LONGEST
                while left > 0 and not run.wait(0) and time.monotonic() < deadline:
                    select.select([run, events], [], [], 1)
                    left -= sum(name.startswith(moment.prefixes) for name in events.names())
                run.wait(moment.seconds)
            if moment is not None:
                run.send(signum)
            return run.end()

    def ask(self, request: dict[str, Any]) -> int:
        """Send a request, and return the answer."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def left_behind(self) -> list[str]:
        """Return the command lines of the processes that came of trainings and are still there."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self._process.pid:
                continue
            try:
                if f"{TOKEN}={self._token}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()[-300:]!r}")
            except OSError:  # It has ended, or is somebody else's.
                pass
        return found

    def assert_nothing_is_left(self) -> None:
        """Give workers some time to notice that their parent is gone, and look for what is left then."""
        deadline = time.monotonic() + 30
        while (left := self.left_behind()) and time.monotonic() < deadline:
            select.select([], [], [], 0.05)
        assert not left, left
        assert not list(self.temporary.iterdir())

    def close(self) -> None:
        """End it."""
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait(20)
            self._process.stdout.close()


@contextmanager
def zygote(directory: Path) -> Iterator[Zygote]:
    """Have a zygote."""
    it = Zygote(directory)
    try:
        yield it
    finally:
        it.close()


def place(run_dir: Path, outcome: Outcome) -> str:
    """Return where the end of an attempt has hit it."""
    if not outcome.steps:
        return "while it started or resumed"
    names = {path.name for path in run_dir.iterdir()}
    with_index = {
        name[len("model-") : -len(".index")] for name in names if name.startswith("model-") and ".index" in name
    }
    with_state = {name[len("state-") : -len(".json")] for name in names if name.startswith("state-")}
    newest = max(map(int, with_state), default=0)
    points_to_newest = not newest or f'path: "model-{newest}"' in _text(run_dir / "checkpoint").partition("\n")[0]
    if any(name.startswith(".writing-") for name in names) or with_index != with_state or not points_to_newest:
        return "while a checkpoint was written"
    return "between checkpoints" if newest else "before the first checkpoint"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


TIMED = ("time", "steps_per_second", "examples_per_second")
"""What is another number each time."""


def stats(run_dir: Path) -> list[dict[str, Any]]:
    """Return the lines of ``stats.jsonl`` without the time and the speeds."""
    lines = [json.loads(line) for line in (run_dir / "stats.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMED} for line in lines]


def events(run_dir: Path) -> list[Any]:
    """Return the values in the event files, sorted."""
    found = []
    for path in run_dir.glob("events.out.tfevents.*"):
        for event in EventFileLoader(str(path)).Load():
            summaries = [value for value in event.summary.value if value.tag not in TIMED]
            found += [(event.step, value.tag, *value.tensor.float_val) for value in summaries]
    return sorted(found)


def curves(run_dir: Path) -> dict[str, Any]:
    """Return the curves that TensorBoard shows, without the speeds."""
    board = EventAccumulator(str(run_dir), size_guidance={"tensors": 0, "scalars": 0})
    board.Reload()
    tags = board.Tags()
    return {
        tag: [(event.step, *event.tensor_proto.float_val) for event in board.Tensors(tag)]
        for tag in tags["tensors"]
        if tag not in TIMED
    } | {
        tag: [(event.step, event.value) for event in board.Scalars(tag)] for tag in tags["scalars"] if tag not in TIMED
    }


def arrays(prefix: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a checkpoint."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same_arrays(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert (value.dtype, value.shape, value.tobytes()) == (
            (other := second[name]).dtype,
            other.shape,
            other.tobytes(),
        ), name


def assert_same_values(whole: Path, killed: Path) -> None:
    """Assert that two runs have the same variables in the end, and have reported the same."""
    with np.load(whole / "final.npz") as first, np.load(killed / "final.npz") as second:
        assert_same_arrays(dict(first), dict(second))
        assert all(np.isfinite(value).all() for value in first.values())
    assert stats(whole) == stats(killed)
    assert events(whole) == events(killed)
    assert curves(whole) == curves(killed)


def assert_same_end(whole: Path, killed: Path) -> None:
    """Assert that nothing but wall-clock times tells two runs apart."""
    assert_same_values(whole, killed)
    # An attempt that was killed before its first checkpoint leaves its statistics beside those of the next one.
    moved_aside = re.compile(r"kept-\d+|stats-\d+\.jsonl")
    kept, kept_of_killed = (
        sorted(
            path.name
            for path in run_dir.iterdir()
            if "events" not in path.name and not moved_aside.fullmatch(path.name)
        )
        for run_dir in (whole, killed)
    )
    assert kept == kept_of_killed
    for name in kept:
        if name.endswith(".index"):
            prefix = name.removesuffix(".index")
            assert_same_arrays(arrays(whole / prefix), arrays(killed / prefix))
        elif name.startswith("checkpoint"):
            assert (whole / name).read_text() == (killed / name).read_text()
