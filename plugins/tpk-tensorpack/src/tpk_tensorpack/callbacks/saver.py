"""Savers of checkpoints, and of the best model."""

from __future__ import annotations

import math
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpk
from tpk.callbacks.savers import directory_of
from tpk.checkpoint.variables import VariableWriter, take_snapshot
from tpk.graph.variables import saveable_variables
from tpk_tensorpack.callbacks.base import Callback
from tpk_tensorpack.utils import logger

__all__ = ["MaxSaver", "MinSaver", "ModelSaver"]


class ModelSaver(Callback, tpk.ModelSaver):
    """Saves checkpoints as ``model-<global step>``, and the graph as ``graph-<time>.meta``; see `tpk.ModelSaver`.

    A checkpoint is taken when all callbacks have done their part, wherever in the list this one stands.

    Args:
        max_to_keep: how many of the latest to keep.
        keep_checkpoint_every_n_hours: keep one of each so many hours besides.
        checkpoint_dir: where to save; by default the log directory.
        var_collections: the names of the collections of the variables to save; by default all that the training needs.
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

    # Not underscored: what comes before the training has a place in the order, which a subclass may not mean to change.
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
    """Saves the variables as ``min-<statistic>`` whenever a statistic is less than it ever was in this training.

    It does so after all that may report the statistic, wherever in the list it stands, and needs no `ModelSaver`. A
    value that is NaN is never the best. It works on all strategies; the chief saves.

    Args:
        monitor_stat: the statistic.
        reverse: save when it is greater than it ever was, as ``max-<statistic>``.
        filename: what to call the files.
        checkpoint_dir: where to save; by default the log directory.

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
        self.filename = filename or f"{'max' if reverse else 'min'}-{monitor_stat}"
        self._given_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.best: tuple[int, float] | None = None
        self._seen = 0
        self._variables: list[Any] = []
        self._writer = VariableWriter()

    @property
    def checkpoint_dir(self) -> Path:
        """Where the files are."""
        return directory_of(self, self._given_dir)

    @property
    def state_key(self) -> str:
        """What tells it from other savers when a training is resumed."""
        return self.filename

    @tpk.hookimpl(trylast=True)
    def setup_graph(self, trainer: Any) -> None:
        """Called before the graph is finalized."""
        self._variables = saveable_variables(trainer.graph)
        self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        super().setup_graph(trainer)

    @tpk.hookimpl(trylast=True)
    def trigger(self) -> None:
        """Save, if there is a new value that is better than all before."""
        super().trigger()

    def _trigger(self) -> None:
        monitors = self.trainer.monitors
        if self.monitor_stat not in monitors.names:
            logger.warning("[%s] There is no statistic %r (yet).", type(self).__name__, self.monitor_stat)
            return
        history = monitors.get_history(self.monitor_stat)
        seen, self._seen = self._seen, len(history)
        value = history[-1][1]
        if len(history) == seen or math.isnan(value):
            return
        if self.best is None or (value > self.best[1] if self.reverse else value < self.best[1]):
            self._save(value)

    def _save(self, value: float) -> None:
        self.trainer.checkpoints.before_saving()
        directory, beside = self.checkpoint_dir, f".writing-{self.filename}"
        self._writer.write(str(directory / beside), take_snapshot(self.trainer.sess, self._variables))
        # The index last: without it, nobody takes the rest for a checkpoint.
        for path in sorted(directory.glob(f"{beside}.*")):
            path.replace(directory / (self.filename + path.name.removeprefix(beside)))
        self.best = (self.global_step, value)
        logger.info("Model with %s %r=%.5g saved.", self.filename.partition("-")[0], self.monitor_stat, value)

    def _after_train(self) -> None:
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the best, and how many values have been looked at."""
        return {"best": None if self.best is None else list(self.best), "seen": self._seen}

    def load_state_dict(self, state: Any) -> None:
        """Take back what `state_dict` returned."""
        self.best = None if state["best"] is None else (int(state["best"][0]), float(state["best"][1]))
        self._seen = int(state["seen"])


class MaxSaver(MinSaver):
    """Saves the variables as ``max-<statistic>`` whenever a statistic is greater than it ever was; see `MinSaver`.

    Args:
        monitor_stat: the statistic.
        filename: what to call the files.
        checkpoint_dir: where to save; by default the log directory.
    """

    def __init__(
        self, monitor_stat: str, filename: str | None = None, checkpoint_dir: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(monitor_stat, True, filename, checkpoint_dir)
