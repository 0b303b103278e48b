"""Series of checkpoints of one training in one directory: written here and now or in a thread, the old ones removed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpk.checkpoint.directory import CheckpointDirectory
from tpk.checkpoint.variables import Snapshot, VariableWriter, take_snapshot
from tpk.errors import CheckpointError, ConfigError

logger = logging.getLogger(__name__)

ON_FAILURE = ("raise", "warn")


class CheckpointSeries:
    """Writes one checkpoint after the other, and keeps as many as it shall.

    Args:
        directory: where.
        retention: which are kept.
        asynchronous: whether files are written in a thread. The values are those at the time of the call all the same;
            one checkpoint is written at a time, and a call waits for the one before.
        on_failure: ``"raise"`` or ``"warn"``: what to do if a checkpoint cannot be written.
        clock: returns the time, in seconds since 1970.

    Raises:
        ConfigError: if `on_failure` is neither of the two.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        retention: Retention,
        *,
        asynchronous: bool = False,
        on_failure: str = "raise",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self.retention = retention
        self._failing = check_on_failure(on_failure)
        self._clock = clock
        self._threads = ThreadPoolExecutor(1, "tpk-checkpoint") if asynchronous else None
        self._under_way: Future[None] | None = None
        self._writer = VariableWriter()
        self._last_path: Path | None = None
        self.last_step: int | None = None

    def prepare(self) -> None:
        """Get the directory ready.

        Raises:
            CheckpointError: if it cannot be written to.
        """
        self.directory.prepare()
        self.retention.start(self._clock())

    def save(self, sess: Any, variables: Sequence[Any], step: int, state: Mapping[str, Any] | None = None) -> None:
        """Save the values that variables have now.

        Args:
            sess: the raw session.
            variables: variables of its graph, the same ones each time.
            step: the global step.
            state: the training state, encoded; None for variables only.

        Raises:
            CheckpointError: if this checkpoint, or the one before it, could not be written.
        """
        self.wait()
        self.last_step = step
        snapshot = take_snapshot(sess, variables)
        if self._threads is None:
            self._settle(lambda: self._write(snapshot, step, state))
        else:
            self._under_way = self._threads.submit(self._write, snapshot, step, state)

    def wait(self) -> Path | None:
        """Wait until what is being written is on disk; return the path of the latest that is, of those of this object.

        Raises:
            CheckpointError: if it could not be written.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self._settle(under_way.result)
        return self._last_path

    @property
    def last_path(self) -> Path | None:
        """The path of the latest checkpoint that is on disk, of those of this object; None before there is one."""
        return self._last_path

    def close(self) -> None:
        """Wait as `wait` does, and let go of threads and sessions."""
        try:
            self.wait()
        finally:
            if self._threads is not None:
                self._threads.shutdown()
            self._writer.close()

    def _settle(self, finish: Callable[[], None]) -> None:
        try:
            finish()
        except CheckpointError as error:
            self._failing(error)

    def _write(self, snapshot: Snapshot, step: int, state: Mapping[str, Any] | None) -> None:
        started = time.monotonic()
        name = self.directory.write(step, lambda prefix: self._writer.write(prefix, snapshot), state, tf.__version__)
        gone = self.retention.add(name, self._clock())
        self.directory.point_to(self.retention.names, gone)
        self._last_path = self.directory.path / name
        logger.debug("saved %s in %.2f s", self._last_path, time.monotonic() - started)


class Retention:
    """Keeps the latest checkpoints, and of those that would go, one of each so many hours for good.

    Args:
        max_to_keep: how many of the latest; 0 or None for all.
        every_n_hours: a checkpoint that would go stays if it is so much younger than the one that stayed before it, or
            than the start.

    Attributes:
        latest: the names of those that will make room one day, the oldest first.
        preserved: the names of those that stay for good, the oldest first.
    """

    def __init__(self, max_to_keep: int | None, every_n_hours: float) -> None:
        self._max_to_keep = max_to_keep or None
        self._period = every_n_hours * 3600
        self._times: dict[str, float] = {}
        self._last_preserved: float | None = None
        self.latest: tuple[str, ...] = ()
        self.preserved: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All that is kept, the oldest first."""
        return [*self.preserved, *self.latest]

    def start(self, now: float) -> None:
        """Count the hours from `now` on, in seconds, unless they are being counted already."""
        if self._last_preserved is None:
            self._last_preserved = now

    def add(self, name: str, now: float) -> list[str]:
        """Take in a new checkpoint, and return the names of those that have to go.

        Args:
            name: its name; if it is known, it is the newest from now on.
            now: the time, in seconds.
        """
        self.start(now)
        assert self._last_preserved is not None
        # A clock that was set back would let no hour pass until it is where it was.
        self._last_preserved = min(self._last_preserved, now)
        self.preserved = tuple(known for known in self.preserved if known != name)
        latest = [*(known for known in self.latest if known != name), name]
        self._times[name] = now
        gone = []
        while self._max_to_keep is not None and len(latest) > self._max_to_keep:
            oldest = latest.pop(0)
            taken = self._times.pop(oldest, now)
            if taken - self._last_preserved >= self._period:
                self._last_preserved = taken
                self.preserved = (*self.preserved, oldest)
            else:
                gone.append(oldest)
        self.latest = tuple(latest)
        return gone

    def state_dict(self) -> dict[str, Any]:
        """Return what is kept for good, and since when the hours count."""
        return {"preserved": list(self.preserved), "last_preserved": self._last_preserved, "times": dict(self._times)}

    def load_state_dict(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Take back what `state_dict` returned.

        Args:
            state: what it returned.
            names: the checkpoints that are there, the oldest first.
        """
        self.preserved = tuple(name for name in state["preserved"] if name in names)
        self.latest = tuple(name for name in names if name not in self.preserved)
        self._times = {name: float(time) for name, time in state["times"].items() if name in self.latest}
        last = state["last_preserved"]
        self._last_preserved = None if last is None else float(last)


def check_on_failure(on_failure: str) -> Callable[[CheckpointError], None]:
    """Return what to do with an error of writing a checkpoint.

    Raises:
        ConfigError: if `on_failure` is neither ``"raise"`` nor ``"warn"``.
    """
    if on_failure not in ON_FAILURE:
        raise ConfigError(f"on_failure={on_failure!r}: expected 'raise' or 'warn'.")
    return _raise if on_failure == "raise" else _warn


def _raise(error: CheckpointError) -> None:
    raise error


def _warn(error: CheckpointError) -> None:
    logger.error("%s Training goes on.", error)
