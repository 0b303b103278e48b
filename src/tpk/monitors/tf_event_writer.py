"""Events for TensorBoard."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpk
from tpk.durable_files import free_name
from tpk.monitors.base import Monitor
from tpk.monitors.event_files import Event, EventFiles
from tpk.plugin.callback import in_run_dir

logger = logging.getLogger(__name__)

SessionLog = tf.compat.v1.SessionLog


class TFEventWriter(Monitor):
    """Writes all reports to an event file for TensorBoard: ``tensorboard --logdir runs``.

    A resumed run continues the same curves in a new file. Events that were written after the checkpoint are removed,
    and a running TensorBoard is told to drop them. If a run begins at step 0 in a folder that has event files of
    another run, TensorBoard shows both. Events that cannot be written, for example because the disk is full, are tried
    again.

    Args:
        logdir: the folder of the event file; None means the `run_dir` of the trainer.
        max_queue: the maximum number of events that wait to be written.
        flush_secs: how long an event may wait, in seconds. This is checked when another event arrives.
        save_graph: also write the graph.
        clock: returns the time of an event.

    Example:
        ```python
        trainer.train(monitors=[TFEventWriter(save_graph=False), JSONWriter()], run_dir="runs/7")
        ```
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str] | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        save_graph: bool = True,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.state_key = "" if logdir is None else os.fspath(logdir)
        self._logdir = logdir
        self._max_queue = max_queue
        self._flush_secs = flush_secs
        self._save_graph = save_graph
        self._clock = clock
        self._files: EventFiles
        self._graph_is_written = False
        self._is_resumed = False

    @property
    def logdir(self) -> Path:
        """The folder of the event file.

        Raises:
            ConfigError: if no `logdir` was given, and the trainer has no `run_dir`.
        """
        return in_run_dir(self) if self._logdir is None else Path(self._logdir)

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Check that there is a folder to write to.

        Raises:
            ConfigError: as `logdir`.
        """
        # The suffix tells the files of several writers apart.
        suffix = f".{(self.plugin_name or type(self).__name__).replace('#', '-')}"
        self._files = EventFiles(self.logdir, suffix, self._max_queue, self._flush_secs, self._clock)

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Write the graph, which is now final, and the step at which the session starts."""
        drops_later_steps = self._is_resumed or self.global_step > 0 or not self._files.paths()
        if self._save_graph and not self._graph_is_written:
            self._graph_is_written = True
            self._add(Event(graph_def=trainer.graph.as_graph_def(add_shapes=True).SerializeToString()))
        # At a start event, TensorBoard drops all events of its step and later: those reported after the checkpoint,
        # but also everything of another run in the folder. The current step was reported before the checkpoint.
        if drops_later_steps:
            self._add(Event(step=self.global_step + 1, session_log=SessionLog(status=SessionLog.START)))

    def process_summary(self, summary: Any) -> None:
        """Write a summary with the current step."""
        self._add(Event(step=self.global_step, summary=summary))

    def process_event(self, event: Any) -> None:
        """Write an event."""
        self._files.add([event.SerializeToString()])

    def flush(self) -> None:
        """Write the events that are waiting."""
        self._files.flush()

    def state_dict(self) -> dict[str, Any]:
        """Return the sizes of the event files in bytes, after syncing them to disk, and the events still waiting."""
        try:
            self.flush()
        except Exception:
            logger.warning("%d events cannot be written to %s now", len(self._files.waiting), self.logdir)
        sizes = {path.name: path.stat().st_size for path in self._files.paths()}
        for name in sizes:
            with (self.logdir / name).open("rb+") as file:
                os.fsync(file.fileno())
        return {"sizes": sizes, "graph_is_written": self._graph_is_written, "waiting": list(self._files.waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove the events that were written after the checkpoint."""
        self._graph_is_written = state["graph_is_written"]
        self._is_resumed = True
        for path in self._files.paths():
            size = state["sizes"].get(path.name, 0)
            if path.stat().st_size > size:
                logger.info("%s: removing the events that were written after the checkpoint", path)
                os.truncate(path, size)
            if not size:
                path.unlink()
        self._files.add(state["waiting"])

    def start_over(self) -> None:
        """Move the event files to a folder ``kept-<n>`` next to them, which is a separate run in TensorBoard."""
        paths = self._files.paths()
        if not paths:
            return
        aside = free_name(self.logdir, "kept")
        aside.mkdir()
        for path in paths:
            path.rename(aside / path.name)
        logger.info("the events of an earlier attempt, which left no checkpoint, are now in %s", aside)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Write the remaining events and close the file."""
        self._files.close()

    def _add(self, event: Any) -> None:
        event.wall_time = self._clock()
        self.process_event(event)
