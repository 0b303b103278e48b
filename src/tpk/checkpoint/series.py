"""The checkpoints of one training in one directory: written at once or in a thread, and removed when they are old."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_one_of
from tpk.checkpoint.checkpoint_directory import CheckpointDirectory
from tpk.checkpoint.variable_writer import VariableWriter
from tpk.errors import CheckpointError

logger = logging.getLogger(__name__)

ON_FAILURE = ("raise", "warn")


class CheckpointSeries:
    """Writes checkpoints, one at a time, and removes old ones.

    Args:
        directory: where to write them.
        retention: which to keep.
        asynchronous: whether to write files in a thread. The values are still copied during the call, and a call waits
            until the previous checkpoint is written.
        on_failure: ``"raise"`` or ``"warn"``: what to do if a checkpoint cannot be written.
        clock: returns the time, in seconds since 1970.

    Raises:
        ConfigError: if `on_failure` is invalid.

    Attributes:
        directory, retention: the arguments.
        last_path: the path of the latest checkpoint that this object has written to disk; None before the first.
        last_step: the step of the latest checkpoint, even if it is still being written; None before the first.
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
        check_one_of(self, ON_FAILURE, on_failure=on_failure)
        self._on_failure = on_failure
        self._clock = clock
        self._threads = ThreadPoolExecutor(1, "tpk-checkpoint") if asynchronous else None
        self._under_way: Future[None] | None = None
        self._writer = VariableWriter()
        self.last_path: Path | None = None
        self.last_step: int | None = None

    def prepare(self) -> None:
        """Get the directory ready.

        Raises:
            CheckpointError: if it cannot be written to.
        """
        self.directory.prepare()
        self.retention.start(self._clock())

    def save(self, sess: Any, variables: Sequence[Any], step: int, state: Mapping[str, Any] | None = None) -> None:
        """Save the current values of variables.

        Args:
            sess: the raw session.
            variables: variables of its graph, the same in each call.
            step: the global step.
            state: the training state, encoded; None for variables only.

        Raises:
            CheckpointError: if this checkpoint, or the one before it, could not be written.
        """
        self.wait()
        self.last_step = step
        # `Session.run` copies what it returns.
        values = sess.run(list(variables))
        write = partial(self._write, partial(self._writer.write, variables=variables, values=values), step, state)
        if self._threads is None:
            self._settle(write)
        else:
            self._under_way = self._threads.submit(write)

    def wait(self) -> Path | None:
        """Wait until everything is on disk, and return `last_path`.

        Raises:
            CheckpointError: if a checkpoint could not be written.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self._settle(under_way.result)
        return self.last_path

    def close(self) -> None:
        """Wait as `wait` does, and release threads and sessions."""
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
            handle_failure(error, self._on_failure)

    def _write(self, write_variables: Callable[[str], None], step: int, state: Mapping[str, Any] | None) -> None:
        started = time.monotonic()
        name = self.directory.write(step, write_variables, state, tf.__version__)
        gone = self.retention.add(name, self._clock())
        self.directory.point_to(self.retention.names, gone)
        self.last_path = self.directory.path / name
        logger.debug("saved %s in %.2f s", self.last_path, time.monotonic() - started)


class Retention:
    """Decides which checkpoints to keep: the latest ones, and one in each period of some hours permanently.

    Args:
        max_to_keep: the number of latest checkpoints to keep; 0 or None for all.
        every_n_hours: before a checkpoint is removed, it is preserved if it was written at least this long after the
            last preserved one, or after the start.

    Attributes:
        latest: the names of the checkpoints that may be removed later, the oldest first.
        preserved: the names of the checkpoints that are kept permanently, the oldest first.
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
        """The names of all checkpoints that are kept, the oldest first."""
        return [*self.preserved, *self.latest]

    def start(self, now: float) -> None:
        """Start to count the hours at `now`, in seconds, unless they are being counted already."""
        if self._last_preserved is None:
            self._last_preserved = now

    def add(self, name: str, now: float) -> list[str]:
        """Add a new checkpoint, and return the names of those to remove.

        Args:
            name: its name. If it is known, it becomes the newest.
            now: the time, in seconds.
        """
        self.start(now)
        assert self._last_preserved is not None
        # If the clock was set back, hours would not count until it has caught up.
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
        """Return the preserved checkpoints, and since when the hours count."""
        return {"preserved": list(self.preserved), "last_preserved": self._last_preserved, "times": dict(self._times)}

    def load_state_dict(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Restore a state.

        Args:
            state: what `state_dict` returned.
            names: the checkpoints that exist, the oldest first.
        """
        self.preserved = tuple(name for name in state["preserved"] if name in names)
        self.latest = tuple(name for name in names if name not in self.preserved)
        self._times = {name: float(time) for name, time in state["times"].items() if name in self.latest}
        last = state["last_preserved"]
        self._last_preserved = None if last is None else float(last)


def handle_failure(error: CheckpointError, on_failure: str) -> None:
    """Raise the error of a checkpoint that could not be written; log it if `on_failure` is ``"warn"``."""
    if on_failure == "raise":
        raise error
    logger.error("%s The training continues.", error)
