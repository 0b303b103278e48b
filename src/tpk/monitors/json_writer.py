"""Scalars as lines of JSON."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from tpk.durable_files import free_name, refuse_link, replace_file
from tpk.monitors.append_file import AppendFile
from tpk.monitors.row_writer import RowWriter
from tpk.monitors.values import json_number

logger = logging.getLogger(__name__)


class JSONWriter(RowWriter):
    """Appends scalars to ``stats.jsonl``, one JSON object a line.

    Each has the keys ``epoch_num``, ``global_step`` and ``time`` (seconds since 1970), and the scalars that
    were reported in that step. NaN and the infinities, which JSON does not have, are the strings ``"NaN"``,
    ``"Infinity"`` and ``"-Infinity"``. A scalar that is called like one of the three keys is written as
    ``scalar/<name>``.

    The file is only ever appended to. Only a run that was killed and resumed cuts off what was written after
    its checkpoint, since it repeats those steps: no line is there twice, and none is missing.

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
        self._file: AppendFile | None = None

    def write_row(self, row: dict[str, int | float]) -> None:
        """Append a line."""
        line = json.dumps(
            {name: json_number(value) for name, value in row.items()}, allow_nan=False, ensure_ascii=False
        )
        self._open().append(line)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def mark(self) -> dict[str, Any]:
        """Return the size of the file in bytes."""
        return {"size": self._open().sync() if self._file is not None or self.path.exists() else 0}

    def cut(self, mark: Mapping[str, Any]) -> None:
        """Take back what was written after `mark` returned this; remove damaged lines, and keep a copy of the file."""
        refuse_link(self.path)
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content[: mark["size"]].splitlines(keepends=True)
        damaged = [number for number, line in enumerate(lines, 1) if not _is_row(line)]
        if damaged:
            copy = free_name(self.path.parent, self.path.stem, self.path.suffix)
            copy.write_bytes(content)
            logger.warning(
                "%s: removed damaged lines (%s); the file as it was is now %s",
                self.path,
                ", ".join(map(str, damaged)),
                copy,
            )
            intact = b"".join(line for line in lines if _is_row(line))
            replace_file(self.path, intact, self.path.with_name(f".{self.path.name}.new"))
        elif mark["size"] or content:
            self._open().truncate(mark["size"])
        # Reopened for the next row: should the training not even begin, nobody would close it.
        self.close()

    def _open(self) -> AppendFile:
        if self._file is None:
            self._file = AppendFile(self.path, is_whole=_is_row)
        return self._file


def _is_row(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
