"""Monitors, which receive the statistics, summaries and images that a training run reports."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpk
import tpk.monitors
from tpk.durable_files import replace_file
from tpk_tensorpack.callbacks.base import Callback, file_in_log_dir
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils import logger

__all__ = [
    "CometMLMonitor",
    "JSONWriter",
    "MonitorBase",
    "Monitors",
    "ScalarPrinter",
    "SendMonitorData",
    "StatPrinter",
    "TFEventWriter",
]


class Monitors(tpk.monitors.Monitors):
    """Passes reports on to the monitors; see `tpk.Monitors`.

    As in tensorpack, the name of the main tower and the suffix ``-summary`` are removed only from scalars.
    """

    @staticmethod
    def read_summary(summary: Any) -> Any:
        """Return a copy of a summary in which scalars have their reported names."""
        renamed = tpk.monitors.Monitors.read_summary(summary)
        given = summary if isinstance(summary, tf.compat.v1.Summary) else tf.compat.v1.Summary.FromString(summary)
        for value, original in zip(renamed.value, given.value, strict=True):
            if not value.HasField("simple_value"):
                value.tag = original.tag
        return renamed


class MonitorBase(Callback, tpk.monitors.Monitor):
    """Base class of monitors: override ``process_scalar``, ``process_image``, ``process_summary``, ….

    Its exceptions are logged, and do not stop training; see `tpk.monitors.Monitor`.
    """


class TFEventWriter(Callback, tpk.monitors.TFEventWriter):
    """Write summaries to an event file in the log directory, for TensorBoard; see `tpk.monitors.TFEventWriter`.

    Args:
        logdir: another directory to write to.
        max_queue: the maximum number of pending events.
        flush_secs: the maximum time that an event is pending.
        kwargs: further options of `tf.compat.v1.summary.FileWriter`, which are ignored.
    """

    def __init__(self, logdir: str | None = None, max_queue: int = 10, flush_secs: int = 120, **kwargs: Any) -> None:
        super().__init__(logdir, max_queue, flush_secs)


class JSONWriter(MonitorBase):
    """Write scalars to ``stats.json`` in the log directory: a list with an object for each step that reports any.

    Each object contains the scalars, ``epoch_num`` and ``global_step``. The file is replaced atomically at the end of
    each epoch. An existing file is continued if it ends with the epoch before the first one of this run; otherwise it
    is renamed. NaN and infinities, which JSON lacks, are written as strings.
    """

    FILENAME = "stats.json"

    def __init__(self) -> None:
        self._stats: list[dict[str, Any]] = []
        self._row: dict[str, Any] = {}
        self._moment: tuple[int, int] | None = None
        self._is_dirty = False

    @staticmethod
    def load_existing_json(dir: str | None = None) -> list[dict[str, Any]] | None:
        """Return the contents of ``stats.json``, or None if it is missing.

        Args:
            dir: the directory to look in; by default the log directory.
        """
        directory = logger.get_logger_dir() if dir is None else dir
        path = None if directory is None else Path(directory) / JSONWriter.FILENAME
        if path is None or not path.is_file():
            return None
        stats = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stats, list):
            raise CheckError(f"{path} does not contain a list, as written by a JSONWriter")
        return stats

    @staticmethod
    def load_existing_epoch_number(dir: str | None = None) -> int | None:
        """Return the number of the last epoch in ``stats.json``, or None if the file is missing."""
        stats = JSONWriter.load_existing_json(dir)
        return int(stats[-1]["epoch_num"]) if stats else None

    @property
    def path(self) -> Path:
        """The path of the file."""
        return file_in_log_dir(self, self.FILENAME)

    def _setup_graph(self) -> None:
        _ = self.path  # raises an error without a log directory

    def _before_train(self) -> None:
        self._stats = self.load_existing_json(str(self.path.parent)) or []
        if not self._stats:
            return
        last, first = int(self._stats[-1]["epoch_num"]), self.trainer.loop.starting_epoch
        if last + 1 == first:
            logger.info("%s exists and is continued.", self.path)
            return
        moved = self.path.with_name(f"{self.FILENAME}.{datetime.now():%m%d-%H%M%S}")
        self.path.rename(moved)
        logger.warning(
            f"{self.path} ends with epoch {last}, but this training run begins with epoch {first}; it was renamed "
            f"{moved.name}. To continue, load the checkpoint and pass starting_epoch={last + 1}, or use "
            "AutoResumeTrainConfig."
        )
        self._stats = []

    def process_scalar(self, name: str, value: int | float) -> None:
        """Add a value to the object of this step."""
        # One object per step, even if the step has several runs.
        moment = (self.epoch_num, self.trainer.local_step)
        if self._moment != moment:
            self._end_row()
        self._moment = moment
        self._row |= {name: value, "epoch_num": self.epoch_num, "global_step": self.global_step}

    def flush(self) -> None:
        """Write the file if there are new values."""
        self._end_row()
        if self._is_dirty:
            self._is_dirty = False
            text = json.dumps(self._stats, allow_nan=False)
            replace_file(self.path, text.encode())

    def state_dict(self) -> dict[str, Any]:
        """Return the written and the pending values."""
        return {"count": len(self._stats), "row": dict(self._row)}

    def load_state_dict(self, state: Any) -> None:
        """Restore the written and the pending values."""
        self._stats = (self.load_existing_json(str(self.path.parent)) or [])[: state["count"]]
        self._row = dict(state["row"])

    def _end_row(self) -> None:
        if self._row:
            self._stats.append({name: tpk.monitors.json_number(value) for name, value in self._row.items()})
            self._row, self._is_dirty = {}, True


class ScalarPrinter(MonitorBase):
    """Log one scalar per line at the end of each epoch.

    Args:
        enable_step: whether to also log after each step that reports any.
        enable_epoch: whether to log at the end of each epoch.
        whitelist: regular expressions to search for in names; only matching scalars are logged.
        blacklist: regular expressions to search for in names; matching scalars are not logged.
    """

    def __init__(
        self,
        enable_step: bool = False,
        enable_epoch: bool = True,
        whitelist: list[str] | None = None,
        blacklist: list[str] | None = None,
    ) -> None:
        self._enable_epoch = enable_epoch
        wanted = {"trigger_step": enable_step, "trigger_epoch": enable_epoch}
        self.unused_hooks = [hook for hook, is_wanted in wanted.items() if not is_wanted]
        self._whitelist = None if whitelist is None else [re.compile(each) for each in whitelist]
        self._blacklist = [re.compile(each) for each in blacklist or ()]
        self._values: dict[str, float] = {}

    def process_scalar(self, name: str, value: int | float) -> None:
        """Store a value; it is logged unless a later one replaces it."""
        self._values[name] = value

    def _trigger_step(self) -> None:
        # The values of the last step of an epoch are logged with the epoch.
        if self.local_step != self.trainer.loop.steps_per_epoch - 1 or not self._enable_epoch:
            self._trigger()

    def _trigger(self) -> None:
        values, self._values = self._values, {}
        if values:
            logger.info("Epoch %d (global_step %d):", self.epoch_num, self.global_step)
        for name, value in sorted(values.items()):
            if self._is_wanted(name):
                logger.info("%s: %.5g", name, value)

    def _is_wanted(self, name: str) -> bool:
        allowed = self._whitelist is None or any(each.search(name) for each in self._whitelist)
        return allowed and not any(each.search(name) for each in self._blacklist)


StatPrinter = ScalarPrinter


class SendMonitorData(MonitorBase):
    """Run a command with statistics as arguments, as soon as all of them have been reported.

    Args:
        command: the command, with ``{name}`` placeholders for statistics.
        names: the names of the statistics.
    """

    def __init__(self, command: str, names: str | list[str]) -> None:
        self.command = command
        self.names = [names] if isinstance(names, str) else list(names)
        self._values: dict[str, float] = {}

    def process_scalar(self, name: str, value: int | float) -> None:
        """Store a value."""
        if name in self.names:
            self._values[name] = value

    def _trigger(self) -> None:
        if all(name in self._values for name in self.names):
            values, self._values = self._values, {}
            status = os.system(self.command.format(**values))
            if status:
                logger.error("Command %r failed with status %d.", self.command, status)


class CometMLMonitor:
    """Raise an error that names alternatives: Comet is not supported."""

    def __init__(self, experiment: Any = None, tags: list[str] | None = None, **kwargs: Any) -> None:
        raise NotImplementedError(
            "CometMLMonitor is not supported. Use monitors=[..., 'mlflow'] or 'wandb' (pip install tpk-mlflow, "
            "tpk-wandb), or derive from MonitorBase"
        )
