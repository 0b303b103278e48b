"""Scalars as a table."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

import tpk
from tpk.durable_files import replace_file
from tpk.monitors.base import FileMonitor
from tpk.monitors.history import POSITION_COLUMNS, column_name


class CSVWriter(FileMonitor):
    """Writes the history as a table to ``stats.csv`` at the end of each epoch.

    It has a row for each step that reported a scalar. The first columns are ``epoch_num``, ``global_step`` and ``time``
    (seconds since 1970), followed by one column for each scalar. A cell without a value is empty; of several values in
    one step, the last is written. NaN and the infinities are ``nan``, ``inf`` and ``-inf``. A scalar named like one of
    the first columns is written as ``scalar/<name>``.

    The file is replaced as a whole, so readers never see a part of it. A file of another run is renamed to
    ``stats-1.csv``.

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
        # When each global step first reported a scalar.
        self._times: dict[int, float] = {}
        self._is_resumed = False

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Set aside the file of another run."""
        if not self._is_resumed:
            self.set_aside()

    def process_scalar(self, name: str, value: int | float) -> None:
        """Note the time of the current step; the value is in the history."""
        self._times.setdefault(self.global_step, round(self._clock(), 3))

    def flush(self) -> None:
        """Write the table."""
        history = self.trainer.monitors.history
        rows: dict[int, dict[str, Any]] = {}
        for name in history:
            column = column_name(name)
            for epoch, (step, value) in zip(history.epochs(name).tolist(), history.of(name), strict=True):
                row = rows.setdefault(step, {"epoch_num": epoch, "global_step": step, "time": self._times.get(step)})
                row[column] = value
        if not rows:
            return
        columns = [*POSITION_COLUMNS, *map(column_name, history)]
        lines = [_line(columns), *(_line(rows[step].get(column) for column in columns) for step in sorted(rows))]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, "".join(lines).encode())

    def state_dict(self) -> dict[str, Any]:
        """Return the times of the steps."""
        return {"steps": np.array([*self._times], np.int64), "times": np.array([*self._times.values()], np.float64)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the times of the steps."""
        self._times = dict(zip(state["steps"].tolist(), state["times"].tolist(), strict=True))
        self._is_resumed = True


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    # Python 3.10 quotes a name with a line end only if that is in the terminator.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"
