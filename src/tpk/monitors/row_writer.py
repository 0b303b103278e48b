"""The base of the monitors that write scalars as rows of a file in the run's folder."""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.durable_files import free_name, refuse_link
from tpk.errors import ConfigError
from tpk.monitors.base import Monitor

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

POSITION_COLUMNS = ("epoch_num", "global_step", "time")
"""What each row begins with. A scalar that is called like one of these is written as ``scalar/<name>``."""


class RowWriter(Monitor):
    """Collects scalars into rows, one for each global step at which something was reported.

    A row is written once a later step begins to report, or at the latest at the end of the epoch. A scalar
    that is reported twice in one step begins another row, so no value is lost. What could not be written is
    tried again.

    Args:
        filename: of the file, in the `run_dir` of the trainer unless it is absolute.
        clock: returns the seconds since 1970 that a row has as its ``time``.
    """

    def __init__(self, filename: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self.filename = Path(filename)
        self._clock = clock
        self._rows: list[dict[str, int | float]] = []

    @property
    def path(self) -> Path:
        """The file.

        Raises:
            ConfigError: if the trainer has no `run_dir` and the file name is relative.
        """
        if self.filename.is_absolute():
            return self.filename
        return in_run_dir(self, self.filename)

    @abstractmethod
    def write_row(self, row: dict[str, int | float]) -> None:
        """Write the values of `row`, the `POSITION_COLUMNS` first; if it raises, nothing was written."""

    @abstractmethod
    def close(self) -> None:
        """Close the file, if it is open."""

    @abstractmethod
    def mark(self) -> dict[str, Any]:
        """Return how much of the file there is, after bringing it to the disk."""

    @abstractmethod
    def cut(self, mark: Mapping[str, Any]) -> None:
        """Take back what was written after `mark` returned this."""

    @property
    def state_key(self) -> str:
        """What tells it from other writers of its kind when a training is resumed."""
        return str(self.filename)

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Check that there is a place to write to.

        Raises:
            ConfigError: if there is none, or it is a link.
        """
        refuse_link(self.path)

    def process_scalar(self, name: str, value: int | float) -> None:
        """Take a value into the row of the current step."""
        key = f"scalar/{name}" if name in POSITION_COLUMNS else name
        row = self._rows[-1] if self._rows else None
        if row is None or key in row or row["global_step"] != self.global_step:
            position = (self.epoch_num, self.global_step, round(self._clock(), 3))
            row = dict(zip(POSITION_COLUMNS, position, strict=True))
            self._rows.append(row)
        row[key] = value
        self._write(keep=1)

    def flush(self) -> None:
        """Write all rows."""
        self._write(keep=0)

    def state_dict(self) -> dict[str, Any]:
        """Return how much is in the file, and the rows that are not in it yet."""
        return {"file": self.mark(), "rows": [dict(row) for row in self._rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what was written after the checkpoint, and go on with the rows that were not complete then."""
        self._rows = [dict(row) for row in state["rows"]]
        self.cut(state["file"])

    def start_over(self) -> None:
        """Rename the file, to ``stats-1.jsonl`` for example."""
        self.close()
        if self.path.exists():
            aside = free_name(self.path.parent, self.path.stem, self.path.suffix)
            self.path.rename(aside)
            logger.info("%s: the rows of an earlier attempt, which left no checkpoint, are now in %s", self.path, aside)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Write what is left, and close the file."""
        try:
            self.flush()
        finally:
            self.close()

    def _write(self, keep: int) -> None:
        while len(self._rows) > keep:
            self.write_row(self._rows[0])
            del self._rows[0]


def in_run_dir(monitor: Monitor, filename: Path) -> Path:
    """Return the path of a file in the folder of the run.

    Raises:
        ConfigError: if the run has none.
    """
    run_dir = monitor.trainer.run_dir
    if run_dir is None:
        name = type(monitor).__name__
        raise ConfigError(
            f"{name} writes into the run's folder, but this run has none (run_dir is None). Give the trainer "
            f"a run_dir, give {name} an absolute path, or leave it out of `monitors`."
        )
    return Path(run_dir) / filename
