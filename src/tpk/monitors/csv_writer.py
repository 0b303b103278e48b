"""Scalars as a table."""

from __future__ import annotations

import csv
import io
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.monitors.append_file import AppendFile
from tpk.monitors.row_writer import POSITION_COLUMNS, RowWriter

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


logger = logging.getLogger(__name__)


class CSVWriter(RowWriter):
    """Appends scalars to ``stats.csv``, a row for each step that reported any, a column for each scalar.

    The first columns are ``epoch_num``, ``global_step`` and ``time`` (seconds since 1970). A scalar that
    comes up later gets a column at the end, for which the file is rewritten, atomically; a cell without a
    value is empty. NaN and the infinities are ``nan``, ``inf`` and ``-inf``. A scalar that is called like one
    of the first columns is written as ``scalar/<name>``.

    A run that was killed and resumed takes back the rows and columns that were written after its checkpoint,
    since it repeats those steps: no row is there twice, and none is missing.

    Args:
        filename: in the `run_dir` of the trainer, unless it is absolute.
        clock: returns the time.

    Example:
        ```python
        trainer.train(monitors=[CSVWriter("curves.csv")], run_dir="runs/7")
        ```
    """

    def __init__(
        self, filename: str | os.PathLike[str] = "stats.csv", *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(filename, clock=clock)
        self._file: AppendFile | None = None
        self._columns: list[str] = []
        self._number_of_rows = 0

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Check that the file can be written, and that it is a table of this kind if it is there already.

        Raises:
            ConfigError: if it is another table, or there is no place for it.
        """
        super().setup_graph(trainer)
        if self.path.exists():
            self._open()
            self.close()

    def write_row(self, row: dict[str, int | float]) -> None:
        """Append a row, after new columns if it has any."""
        if self._file is None:
            self._open()
        new = [name for name in row if name not in self._columns]
        if new:
            self._add_columns(new)
        assert self._file is not None
        self._file.append(_line(row.get(name, "") for name in self._columns))
        self._number_of_rows += 1

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def mark(self) -> dict[str, Any]:
        """Return the number of rows and the columns."""
        if self._file is None and not self.path.exists():
            return {"rows": 0, "columns": []}
        if self._file is None:
            self._open()
        assert self._file is not None
        self._file.sync()
        return {"rows": self._number_of_rows, "columns": list(self._columns)}

    def cut(self, mark: Mapping[str, Any]) -> None:
        """Take back the rows and columns that were written after `mark` returned this."""
        if not mark["columns"] and not self.path.exists():
            return
        self._open()
        table = _rows(self.path)
        kept = [row[: len(mark["columns"])] for row in table[: mark["rows"] + 1]] if mark["columns"] else []
        if len(kept) < mark["rows"] + bool(mark["columns"]):
            logger.warning("%s has fewer rows than at the checkpoint; rows are missing", self.path)
        if kept != table:
            logger.info("%s: cutting off what was written after the checkpoint", self.path)
            self.close()
            _replace(self.path, "".join(_line(row) + "\n" for row in kept))
        # Reopened for the next row: should the training not even begin, nobody would close it.
        self.close()

    def _open(self) -> None:
        self.close()
        self._file = AppendFile(self.path)
        table = _rows(self.path)
        header = table[:1]
        self._number_of_rows = len(table[1:])
        if header and tuple(header[0][: len(POSITION_COLUMNS)]) != POSITION_COLUMNS:
            self.close()
            raise ConfigError(
                f"{self.path} is there already and was not written by CSVWriter: its columns are "
                f"{header[0]}. Move it away, or give CSVWriter another file name."
            )
        self._columns = header[0] if header else []

    def _add_columns(self, new: list[str]) -> None:
        columns = [*self._columns, *new]
        rows = [row + [""] * (len(columns) - len(row)) for row in _rows(self.path)[1:]]
        self.close()
        _replace(self.path, "".join(_line(row) + "\n" for row in [columns, *rows]))
        self._columns = columns
        self._file = AppendFile(self.path)


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    # Names with a line end are quoted only if it is in the terminator.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def _replace(path: Path, content: str) -> None:
    """Give the file `path` new content, such that a reader or a crash sees either the old or the new."""
    handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
    try:
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as file:
            file.write(content)
        os.chmod(temporary, path.stat().st_mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
