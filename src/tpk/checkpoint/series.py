"""The checkpoints of one training in one directory: written here and now or in a thread, the old ones removed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpk.checkpoint.directory import CheckpointDirectory
from tpk.checkpoint.retention import Retention
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
        self._writer: VariableWriter | None = None
        self._written_variables: Sequence[Any] = ()
        self.last_path: Path | None = None

    def prepare(self) -> None:
        """Get the directory ready.

        Raises:
            CheckpointError: if it cannot be written to.
        """
        self.directory.prepare()
        self.retention.start(self._clock())

    def save(self, sess: Any, variables: Sequence[Any], step: int, state: Mapping[str, Any] | None) -> None:
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
        snapshot = take_snapshot(sess, variables)
        if self._threads is None:
            self._settle(lambda: self._write(snapshot, step, state))
        else:
            self._under_way = self._threads.submit(self._write, snapshot, step, state)

    def wait(self) -> None:
        """Wait until what is being written is on disk.

        Raises:
            CheckpointError: if it could not be written.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self._settle(under_way.result)

    def close(self) -> None:
        """Wait as `wait` does, and let go of threads and sessions."""
        try:
            self.wait()
        finally:
            if self._threads is not None:
                self._threads.shutdown()
            if self._writer is not None:
                self._writer.close()

    def _settle(self, finish: Callable[[], None]) -> None:
        try:
            finish()
        except CheckpointError as error:
            self._failing(error)

    def _write(self, snapshot: Snapshot, step: int, state: Mapping[str, Any] | None) -> None:
        started = time.monotonic()
        if self._writer is None or self._written_variables != snapshot.variables:
            if self._writer is not None:
                self._writer.close()
            self._writer, self._written_variables = VariableWriter(snapshot.variables), snapshot.variables
        writer = self._writer
        name = self.directory.write(step, lambda prefix: writer.write(prefix, snapshot), state, tf.__version__)
        gone = self.retention.add(name, self._clock())
        try:
            self.directory.point_to(name, self.retention.names)
        except CheckpointError:
            # On a full disk, there may be space once the old ones are gone.
            self._remove(gone)
            self.directory.point_to(name, self.retention.names)
        self._remove(gone)
        self.last_path = self.directory.directory / name
        logger.info("saved %s in %.2f s", self.last_path, time.monotonic() - started)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self.directory.remove(name)


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
