"""Runs, read from the files in their directories. Needs no TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from tpk.checkpoint.files import Checkpoint, newest_present
from tpk.errors import ConfigError, TpkError
from tpk.monitors.history import History, direction_by_name
from tpk.plugin.builtins import BUILTINS
from tpk.plugin.recorded_options import NOT_WRITTEN
from tpk.train.run.attempts import Attempt, read_attempts
from tpk.train.run.lock import owner_of
from tpk.train.run.names import ATTEMPTS_NAME, CONFIG_NAME, RUN_FILE_NAME
from tpk.train.run_file.toml import TOMLDecodeError, loads

_TRACES = ("stats.jsonl", "log.txt", ATTEMPTS_NAME)
_NAMES_OF_STRATEGIES = {target.rpartition(":")[2]: name for name, target in BUILTINS["strategy"].items()}


def find_runs(paths: Sequence[Path]) -> list[Run]:
    """Return the runs in directories.

    Args:
        paths: directories of runs, or directories with runs below them.

    Raises:
        ConfigError: if a directory does not exist or has no run.
    """
    found: dict[str, Run] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(
                f"the directory {str(path)!r} does not exist. Name the directory of a run, or one with runs below it."
            )
        runs = [Run(directory) for directory in _run_dirs(path)]
        if not runs:
            raise ConfigError(
                f"{str(path)!r} has no run in it or below it: no directory there has a config.json and a log."
            )
        found.update((os.path.realpath(run.directory), run) for run in runs)
    return list(found.values())


def find_run(path: Path) -> Run:
    """Return the run in a directory.

    Raises:
        ConfigError: if the directory has no run, or only runs below it; the message names some.
    """
    if path.is_dir() and _is_run(path):
        return Run(path)
    runs = find_runs([path])
    names = ", ".join(run.name for run in runs[-5:])
    raise ConfigError(f"{str(path)!r} has {len(runs)} runs below it: name one, such as {names}.")


def newest_run() -> Run:
    """Return the run below ``./runs`` that was active last.

    Raises:
        ConfigError: if the directory ``runs`` is missing or empty.
    """
    return max(find_runs([Path("runs")]), key=Run.last_activity)


def short_names(runs: Sequence[Run]) -> list[str]:
    """Return the paths of runs without the directories that they have in common."""
    paths = [os.path.realpath(run.directory) for run in runs]
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, common) for path in paths]


def _run_dirs(path: Path) -> Iterator[Path]:
    if _is_run(path):
        yield path
        return
    for directory, names, _ in os.walk(path):
        names.sort()
        here = [name for name in names if _is_run(Path(directory, name))]
        names[:] = [name for name in names if name not in here and not name.startswith(".")]
        yield from (Path(directory, name) for name in here)


def _is_run(directory: Path) -> bool:
    return (directory / CONFIG_NAME).is_file() and any((directory / name).is_file() for name in _TRACES)


@attrs.frozen(slots=False)
class Run:
    """A run, read from its directory.

    Attributes:
        directory: the ``run_dir``.
    """

    directory: Path

    @property
    def name(self) -> str:
        """The directory, as the user named it."""
        return str(self.directory)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The content of ``config.json``.

        Raises:
            ConfigError: if it cannot be read.
        """
        path = self.directory / CONFIG_NAME
        try:
            config = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{str(path)!r} cannot be read: {error}.") from error
        if not isinstance(config, dict):
            raise ConfigError(f"{str(path)!r} is not a JSON object, so it was not written by tpk.")
        return config

    @cached_property
    def run_file(self) -> Path | None:
        """The file with which `tpk train` repeats the run; None if it is missing or incomplete."""
        path = self.directory / RUN_FILE_NAME
        try:
            content = loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, TOMLDecodeError):
            return None
        return path if _is_whole(content) else None

    @cached_property
    def attempts(self) -> list[Attempt]:
        """The processes that have trained this run, and how each ended."""
        return read_attempts(self.directory)

    @cached_property
    def history(self) -> History:
        """The statistics; empty without a ``stats.jsonl``."""
        return History.read(self.directory) if (self.directory / "stats.jsonl").is_file() else History()

    @cached_property
    def owner(self) -> Mapping[str, Any] | None:
        """The process that is training the run, or None."""
        return owner_of(self.directory)

    @property
    def state(self) -> str:
        """One of running, finished, interrupted, failed, killed, or unknown (not recorded)."""
        if self.owner is not None:
            return "running"
        if not self.attempts:
            return "unknown"
        return self.attempts[-1].end or "killed"

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint whose files all exist and have the right size, or None."""
        return newest_present(self.directory)

    @property
    def strategy(self) -> str:
        """The name of the strategy and the number of towers, such as ``replicated x 2``; ``-`` for none."""
        found = self.config.get("strategy")
        if not isinstance(found, dict):
            return "-"
        name = str(found.get("name"))
        towers = (self.config.get("num_replicas") or 1) * (self.config.get("world_size") or 1)
        return _NAMES_OF_STRATEGIES.get(name, name) + (f" x {towers}" if towers > 1 else "")

    @property
    def directions(self) -> dict[str, str]:
        """``"min"`` or ``"max"``, whichever is better, for each statistic with a known direction; main ones first."""
        recorded = next((each.directions for each in reversed(self.attempts) if each.directions), {})
        by_name = {name: mode for name in self.history if (mode := direction_by_name(name))}
        return {**recorded, **by_name, **recorded}

    @property
    def epoch(self) -> int | None:
        """The last epoch; None if unknown."""
        recorded = [each.epoch for each in self.attempts if each.epoch is not None]
        return max([*recorded, *self._last_reports(self.history.epochs)], default=None)

    @property
    def step(self) -> int | None:
        """The last known global step; None if unknown."""
        recorded = [each.step for each in self.attempts[-1:] if each.step is not None]
        return max([*recorded, *self._last_reports(self.history.steps)], default=None)

    def _last_reports(self, positions: Any) -> list[int]:
        return [int(positions(name)[-1]) for name in self.history]

    def seconds(self, now: float) -> float | None:
        """Return the training time; a killed attempt counts until its last write to a file.

        Args:
            now: seconds since 1970.
        """
        if not self.attempts:
            return None
        *former, last = self.attempts
        # The duration of an attempt that was killed and resumed later is unknown.
        known = sum(each.ended - each.began for each in former if each.ended is not None)
        end = last.ended or (now if self.owner is not None else self.last_activity())
        return known + max(end - last.began, 0)

    def last_activity(self) -> float:
        """Return when the run last wrote to one of its files, in seconds since 1970."""
        times = [path.stat().st_mtime for name in _TRACES if (path := self.directory / name).is_file()]
        return max(times, default=0)

    def best(self, name: str) -> tuple[float, int, int] | None:
        """Return the best value of a statistic, its epoch and its step; None if unknown."""
        if name not in self.history or name not in self.directions:
            return None
        return self.history.best(name, self.directions[name])

    def problem(self) -> str | None:
        """Return why the files cannot be read; None if they can."""
        try:
            _ = self.config, self.attempts, self.history
        except TpkError as error:
            return str(error)
        return None


def _is_whole(value: Any) -> bool:
    """Whether a run file has a value for everything, with nothing marked as not written."""
    if isinstance(value, dict):
        return NOT_WRITTEN not in value and all(map(_is_whole, value.values()))
    return not isinstance(value, list) or all(map(_is_whole, value))
