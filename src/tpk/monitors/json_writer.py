"""Scalars as lines of JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import tpk
from tpk.durable_files import free_name, open_no_link, refuse_link, replace_file
from tpk.monitors.base import FileMonitor
from tpk.monitors.history import POSITION_COLUMNS, column_name
from tpk.monitors.values import json_number

logger = logging.getLogger(__name__)


class JSONWriter(FileMonitor):
    """Appends scalars to ``stats.jsonl``, one JSON object per line.

    Each object has the keys ``epoch_num``, ``global_step`` and ``time`` (seconds since 1970), and the scalars reported
    in that step. NaN and the infinities, which JSON does not have, are the strings ``"NaN"``, ``"Infinity"`` and
    ``"-Infinity"``. A scalar named like one of the three keys is written as ``scalar/<name>``.

    A line is written when a later step reports a scalar, and at the latest at the end of the epoch. A scalar reported
    twice in a step begins another line, so no value is lost. A line that cannot be written is tried again.

    A resumed run removes the lines that were written after its checkpoint and repeats those steps, so every line is
    there once. Otherwise the file is only appended to.

    Args:
        filename: in the `run_dir` of the trainer, unless it is absolute.
        clock: returns the time.

    Example:
        ```python
        import pandas

        stats = pandas.read_json(trainer.run_dir / "stats.jsonl", lines=True)
        stats.plot(x="global_step", y=["cost", "val-error"])
        ```
    """

    def __init__(
        self, filename: str | os.PathLike[str] = "stats.jsonl", *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(filename, clock=clock)
        self._rows: list[dict[str, int | float]] = []
        self._file: _AppendedFile | None = None

    def process_scalar(self, name: str, value: int | float) -> None:
        """Add a value to the row of the current step."""
        key = column_name(name)
        row = self._rows[-1] if self._rows else None
        if row is None or key in row or row["global_step"] != self.global_step:
            position = (self.epoch_num, self.global_step, round(self._clock(), 3))
            row = dict(zip(POSITION_COLUMNS, position, strict=True))
            self._rows.append(row)
        row[key] = value
        self._write_all_but(1)

    def flush(self) -> None:
        """Write all rows."""
        self._write_all_but(0)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Write the remaining rows and close the file."""
        with closing(self):
            self.flush()

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def state_dict(self) -> dict[str, Any]:
        """Return the size of the file in bytes, and the rows that are not in it yet."""
        size = self._open().sync() if self._file is not None or self.path.exists() else 0
        return {"file": {"size": size}, "rows": [dict(row) for row in self._rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove the lines written after the checkpoint, and restore the rows that were not written then."""
        self._rows = [dict(row) for row in state["rows"]]
        self._restore_file(state["file"]["size"])

    def start_over(self) -> None:
        """Rename the file, to ``stats-1.jsonl`` for example."""
        self.close()
        self.set_aside()

    def _write_all_but(self, number: int) -> None:
        while len(self._rows) > number:
            row = {name: json_number(value) for name, value in self._rows[0].items()}
            self._open().append(json.dumps(row, allow_nan=False, ensure_ascii=False))
            del self._rows[0]

    def _open(self) -> _AppendedFile:
        if self._file is None:
            self._file = _AppendedFile(self.path)
        return self._file

    def _restore_file(self, size: int) -> None:
        """Cut the file to the first `size` bytes, without damaged lines, of which a copy is kept."""
        refuse_link(self.path)
        content = self.path.read_bytes() if self.path.exists() else b""
        if len(content) < size:
            logger.warning(
                "%s is %d bytes shorter than at the checkpoint; lines are missing", self.path, size - len(content)
            )
        lines = content[:size].splitlines(keepends=True)
        damaged = [number for number, line in enumerate(lines, 1) if not _is_row(line)]
        if damaged:
            copy = free_name(self.path.parent, self.path.stem, self.path.suffix)
            copy.write_bytes(content)
            numbers = ", ".join(map(str, damaged))
            logger.warning("%s: removed damaged lines (%s); a copy of the file is in %s", self.path, numbers, copy)
        restored = b"".join(line for line in lines if _is_row(line))
        if restored != content:
            replace_file(self.path, restored)


class _AppendedFile(io.FileIO):
    """A file to which lines are appended, each in one system call, so that a killed process leaves no part of one.

    An incomplete last line that a crash or a full disk has left is removed, so that the next line stays separate.

    Args:
        path: the file; it and its directories are created if necessary.

    Raises:
        ConfigError: if the file is a symbolic link.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, "a", opener=open_no_link)
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if _is_row(content[whole:]):
            self.write(b"\n")
        elif content[whole:]:
            logger.warning("%s: removed an incomplete last line of %d bytes", path, len(content) - whole)
            self.truncate(whole)

    def append(self, line: str) -> None:
        """Append `line`, without its line end.

        Raises:
            OSError: if it cannot be written; the file is unchanged.
        """
        data = line.encode() + b"\n"
        before = self.seek(0, io.SEEK_END)
        try:
            if self.write(data) != len(data):
                raise OSError(f"{self.name}: only part of a line could be written; the disk may be full")
        except OSError:
            self.truncate(before)
            raise

    def sync(self) -> int:
        """Write the file to disk, and return its size in bytes."""
        os.fsync(self.fileno())
        return self.seek(0, io.SEEK_END)


def _is_row(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
