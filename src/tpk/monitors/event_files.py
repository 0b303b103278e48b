"""Event files, written so that no event is lost when the disk is full."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import tensorflow as tf

Event = tf.compat.v1.Event

_PREFIX = "events.out.tfevents."
_file_count = itertools.count()


@attrs.define(eq=False)
class EventFiles:
    """Appends events to a file in a folder, and begins another file after a failure.

    When a write fails, TensorFlow's own writer stops for good and leaves half of a record, at which readers stop. This
    class removes the partial record, and keeps the events until they can be written.

    TensorBoard reads the files in the order of their names. A new file is named so that it comes after the existing
    ones, whatever the clock says.

    Args:
        folder: the folder of the files; it is created with the first event.
        suffix: the end of the names of the files, which identifies their writer.
        max_queue: the maximum number of events that wait to be written.
        flush_secs: how long events may wait, in seconds. This is checked when another event arrives.
        clock: returns the time, in seconds since 1970.

    Attributes:
        waiting: the events that are still to be written.
    """

    _folder: Path
    _suffix: str
    _max_queue: int
    _flush_secs: float
    _clock: Callable[[], float]
    waiting: list[bytes] = attrs.field(factory=list, init=False)
    _flushed_at: float = attrs.field(factory=time.monotonic, init=False)
    _writer: Any = attrs.field(default=None, init=False)
    _path: Path = attrs.field(factory=Path, init=False)
    _size: int = attrs.field(default=0, init=False)

    def paths(self) -> list[Path]:
        """Return the files with this suffix in order, including files of earlier attempts at the run. Ignores links."""
        return sorted(path for path in self._folder.glob(f"{_PREFIX}*{self._suffix}") if not path.is_symlink())

    def add(self, events: Sequence[bytes]) -> None:
        """Add serialized events, and write them if enough events are waiting.

        Raises:
            Exception: if they cannot be written; they keep waiting.
        """
        self.waiting += events
        if len(self.waiting) >= self._max_queue or time.monotonic() - self._flushed_at >= self._flush_secs:
            self.flush()

    def flush(self) -> None:
        """Write the events that are waiting.

        Raises:
            Exception: if they cannot be written; they keep waiting.
        """
        if not self.waiting:
            return
        try:
            if self._writer is None:
                self._begin()
            for event in self.waiting:
                self._writer.write(event)
            self._writer.flush()
            self._size = self._path.stat().st_size
        except Exception:
            self._give_up_file()
            raise
        self.waiting.clear()
        self._flushed_at = time.monotonic()

    def close(self) -> None:
        """Write the events that are waiting, and close the file.

        Raises:
            Exception: if they cannot be written.
        """
        try:
            self.flush()
        finally:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    def _begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        there = [path.name.removeprefix(_PREFIX).partition(".")[0] for path in self.paths()]
        latest = max((int(seconds) for seconds in there if seconds.isdigit()), default=-1)
        seconds = max(int(self._clock()), latest + 1)
        # Distinguishes files of other writers and processes in the same second.
        own = f"{socket.gethostname()}.{os.getpid()}.{next(_file_count)}"
        path = self._folder / f"{_PREFIX}{seconds:010d}.{own}{self._suffix}"
        path.touch(exist_ok=False)  # TensorFlow would follow a link.
        self._path, self._size = path, 0
        self._writer = tf.io.TFRecordWriter(os.fspath(path))
        self._writer.write(Event(wall_time=self._clock(), file_version="brain.Event:2").SerializeToString())

    def _give_up_file(self) -> None:
        writer, self._writer = self._writer, None
        with suppress(Exception):  # It may try again to write the rest.
            if writer is not None:
                writer.close()
        del writer
        with suppress(OSError):
            if self._size:
                os.truncate(self._path, self._size)
            else:
                self._path.unlink()
