"""Callbacks that save checkpoints and the best model."""

from __future__ import annotations

import math
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpk
from tpk.callbacks import Statistic
from tpk.checkpoint.variables import VariableWriter, take_snapshot
from tpk.graph.variables import saveable_variables
from tpk_tensorpack.callbacks.base import Callback, file_in_log_dir
from tpk_tensorpack.utils import logger

__all__ = ["MaxSaver", "MinSaver", "ModelSaver"]


class ModelSaver(Callback, tpk.ModelSaver):
    """Save checkpoints as ``model-<global step>``, and the graph as ``graph-<time>.meta``; see `tpk.ModelSaver`.

    A checkpoint is saved after all other callbacks, whatever the position in the list.

    Args:
        max_to_keep: the number of latest checkpoints to keep.
        keep_checkpoint_every_n_hours: also keep one checkpoint per this many hours.
        checkpoint_dir: the directory to save to; by default the log directory.
        var_collections: the names of the collections of variables to save; by default all variables that training
            needs.
    """

    def __init__(
        self,
        max_to_keep: int | None = 10,
        keep_checkpoint_every_n_hours: float = 0.5,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        var_collections: str | list[str] | None = None,
    ) -> None:
        super().__init__(max_to_keep, keep_checkpoint_every_n_hours, checkpoint_dir)
        self.var_collections = [var_collections] if isinstance(var_collections, str) else var_collections

    # Without underscore: its order among the hooks before training matters, which a subclass may not mean to change.
    def setup_graph(self, trainer: Any) -> None:
        """Called before the graph is finalized."""
        if self.var_collections is not None:
            found = [each for key in self.var_collections for each in trainer.graph.get_collection(key)]
            self._var_list = list({id(each): each for each in found}.values())
            self.weights_only = True
        other = next(filter(self._saves_the_same_files, trainer.hooks.plugins.values()), None)
        if other is None:
            super().setup_graph(trainer)
        else:
            self.series = other.series

    def _saves_the_same_files(self, other: Any) -> bool:
        is_ready = isinstance(other, ModelSaver) and other is not self and hasattr(other, "series")
        return is_ready and bool(other.checkpoint_dir == self.checkpoint_dir)

    def before_train(self, trainer: Any) -> None:
        """Called before the first epoch."""
        name = f"graph-{datetime.now():%m%d-%H%M%S}.meta"
        with trainer.graph.as_default():
            tf.compat.v1.train.export_meta_graph(str(self.checkpoint_dir / name), graph=trainer.graph)
        super().before_train(trainer)


class MinSaver(Callback):
    """Save the variables as ``min-<statistic>`` whenever a statistic reaches a new minimum in this training run.

    This happens after every callback that may report the statistic, whatever the position in the list, and needs no
    `ModelSaver`. NaN is never the best value. It works with all strategies; the chief saves.

    Args:
        monitor_stat: the name of the statistic.
        reverse: save at a new maximum instead, as ``max-<statistic>``.
        filename: another file name.
        checkpoint_dir: the directory to save to; by default the log directory.

    Example:
        ```python
        callbacks=[InferenceRunner(test, ClassificationError()), MinSaver("validation_error")]
        ```
    """

    def __init__(
        self,
        monitor_stat: str,
        reverse: bool = False,
        filename: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.monitor_stat = monitor_stat
        self.reverse = reverse
        self.statistic = Statistic(monitor_stat, "max" if reverse else "min")
        self.filename = filename or f"{self.statistic.mode}-{monitor_stat}"
        self._given_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.best: tuple[int, float] | None = None
        self._variables: list[Any] = []
        self._writer = VariableWriter()

    @property
    def checkpoint_dir(self) -> Path:
        """The directory of the files."""
        return file_in_log_dir(self) if self._given_dir is None else self._given_dir

    @property
    def state_key(self) -> str:
        """The key of its state, distinct from other savers."""
        return self.filename

    @tpk.hookimpl(trylast=True)
    def setup_graph(self, trainer: Any) -> None:
        """Called before the graph is finalized."""
        self._variables = saveable_variables(trainer.graph)
        self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        super().setup_graph(trainer)

    @tpk.hookimpl(trylast=True)
    def trigger(self) -> None:
        """Save if there is a new best value."""
        super().trigger()

    def _trigger(self) -> None:
        value = self.statistic.take_new(self.trainer.monitors)
        if value is None or math.isnan(value):
            return
        sign = self.statistic.sign
        if self.best is None or sign * value < sign * self.best[1]:
            self._save(value)

    def _save(self, value: float) -> None:
        self.trainer.checkpoints.before_saving()
        directory, beside = self.checkpoint_dir, f".writing-{self.filename}"
        self._writer.write(str(directory / beside), take_snapshot(self.trainer.sess, self._variables))
        # Write the index last: without it, the other files are not recognized as a checkpoint.
        for path in sorted(directory.glob(f"{beside}.*")):
            path.replace(directory / (self.filename + path.name.removeprefix(beside)))
        self.best = (self.global_step, value)
        logger.info("Model with %s %r=%.5g saved.", self.filename.partition("-")[0], self.monitor_stat, value)

    def _after_train(self) -> None:
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and the number of values seen."""
        return {"best": None if self.best is None else list(self.best), **self.statistic.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        """Restore the state from `state_dict`."""
        self.best = None if state["best"] is None else (int(state["best"][0]), float(state["best"][1]))
        self.statistic.load_state_dict(state)


class MaxSaver(MinSaver):
    """Save the variables as ``max-<statistic>`` whenever a statistic reaches a new maximum; see `MinSaver`.

    Args:
        monitor_stat: the name of the statistic.
        filename: another file name.
        checkpoint_dir: the directory to save to; by default the log directory.
    """

    def __init__(
        self, monitor_stat: str, filename: str | None = None, checkpoint_dir: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(monitor_stat, True, filename, checkpoint_dir)
