"""Callbacks that save checkpoints and the best model."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

import tensorflow as tf

import tpk
from tpk_tensorpack.callbacks.base import Callback
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


class MinSaver(Callback, tpk.MinSaver):
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
        self._mode = "max" if reverse else "min"
        super().__init__(monitor_stat, filename=filename, checkpoint_dir=checkpoint_dir)

    @tpk.hookimpl(trylast=True)
    def trigger(self) -> None:
        """Save if there is a new best value."""
        super().trigger()

    def _save(self, value: float) -> None:
        self.trainer.checkpoints.before_saving()
        directory, beside = self.checkpoint_dir, f".writing-{self._prefix}"
        self._writer.write(str(directory / beside), self._variables, self.trainer.sess.run(self._variables))
        # Write the index last: without it, the other files are not recognized as a checkpoint.
        for path in sorted(directory.glob(f"{beside}.*")):
            path.replace(directory / (self._prefix + path.name.removeprefix(beside)))
        self._best = [(value, self._prefix)]
        logger.info("Model with %s %r=%.5g saved.", self._mode, self.statistic, value)

    def load_state_dict(self, state: Any) -> None:
        """Restore the best value."""
        tpk.Callback.load_state_dict(self, state)


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
