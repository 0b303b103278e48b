"""Scalars as a table."""

from __future__ import annotations

import csv
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tpk.errors import ConfigError
from tpk.monitors.append_file import AppendFile
from tpk.monitors.row_writer import POSITION_COLUMNS, RowWriter

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer


class CSVWriter(RowWriter):
    """Appends scalars to ``stats.csv``, a row for each step that reported any, a column for each scalar.

    The first columns are ``epoch_num``, ``global_step`` and ``time`` (seconds since 1970). A scalar that
    comes up later gets a column at the end, for which the file is rewritten, atomically; a cell without a
    value is empty. NaN and the infinities are ``nan``, ``inf`` and ``-inf``. A scalar that is called like one
    of the first columns is written as ``scalar/<name>``.

    A run that was killed and resumed goes on in the same file, and repeats the steps after its checkpoint: of
    two rows with the same step, the later one counts.

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

    def setup_graph(self, trainer: Trainer) -> None:
        """Check that the file can be written, and that it is a table of this kind if it is there already.

        Raises:
            ConfigError: if it is another table, or there is no place for it.
        """
        super().setup_graph(trainer)
        if self.path.exists():
            self._open()

    def write_row(self, row: dict[str, int | float]) -> None:
        """Append a row, after new columns if it has any."""
        if self._file is None:
            self._open()
        new = [name for name in row if name not in self._columns]
        if new:
            self._add_columns(new)
        assert self._file is not None
        self._file.append(_line(row.get(name, "") for name in self._columns))

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        self._file = AppendFile(self.path)
        header = _rows(self.path)[:1]
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
