"""Saving the model."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.variables import saveable_variables
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer

logger = logging.getLogger(__name__)


class ModelSaver(Callback):
    """Saves the variables of the model at the end of each epoch, as ``model-<global step>`` in the run's directory.

    Use `PeriodicTrigger` for other times. The files are those of `tf.compat.v1.train.Saver`.

    Args:
        max_to_keep: how many of the latest checkpoints to keep; 0 or None for all.
        keep_checkpoint_every_n_hours: keep one of each so many hours besides.
        checkpoint_dir: where to save; by default the `run_dir` of the trainer.
        var_list: the variables to save; by default all that a checkpoint holds.

    Raises:
        ConfigError: if `max_to_keep` is negative; and, when the training starts, if there is no directory.

    Example:
        ```python
        callbacks=[tpk.PeriodicTrigger(tpk.ModelSaver(max_to_keep=3), every_k_epochs=2)]
        ```
    """

    def __init__(
        self,
        max_to_keep: int | None = 10,
        keep_checkpoint_every_n_hours: float = 10_000,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        var_list: list[Any] | None = None,
    ) -> None:
        if max_to_keep is not None and max_to_keep < 0:
            raise ConfigError(f"ModelSaver(max_to_keep={max_to_keep}): expected a positive number, or 0 for all.")
        self._max_to_keep = max_to_keep
        self._keep_every_n_hours = keep_checkpoint_every_n_hours
        self._checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self._var_list = var_list
        self._saver: Any = None

    @property
    def checkpoint_dir(self) -> Path:
        """Where the checkpoints are."""
        directory = self._checkpoint_dir if self._checkpoint_dir is not None else self.trainer.run_dir
        if directory is None:
            raise ConfigError(
                "ModelSaver has no directory to save in. Give the training a run_dir, or ModelSaver a checkpoint_dir."
            )
        return directory

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: Trainer) -> None:
        """Add the ops that save, once every other callback has added its variables."""
        self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        self._saver = tf.compat.v1.train.Saver(
            saveable_variables(trainer.graph) if self._var_list is None else self._var_list,
            max_to_keep=self._max_to_keep,
            keep_checkpoint_every_n_hours=self._keep_every_n_hours,
            save_relative_paths=True,
        )

    @hookimpl(trylast=True)
    def trigger(self) -> None:
        """Save, once the other callbacks have changed what they change at this time."""
        path = self._saver.save(
            self.trainer.sess,
            str(self.checkpoint_dir / "model"),
            global_step=self.global_step,
            write_meta_graph=False,
        )
        logger.info("saved %s", path)
