"""Saver of the model, and with it of all that it takes to resume the training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.callbacks.composition.trigger import Every
from tpk.checkpoint.directory import CheckpointDirectory
from tpk.checkpoint.series import CheckpointSeries, Retention, check_on_failure
from tpk.checks import check_at_least, check_flags, check_not_negative
from tpk.errors import ConfigError
from tpk.graph.variables import saveable_variables
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


class ModelSaver(Callback):
    """Saves checkpoints: the variables as ``model-<global step>``, and what else it takes to resume the training.

    It saves at the end of each epoch, or `when` it shall; or, as any callback with a `trigger`, when `PeriodicTrigger`
    says so. A checkpoint is taken after all callbacks and monitors have done their part of that step or epoch, wherever
    in the list this one stands. The variables' files are those of `tf.compat.v1.train.Saver`.

    Only a checkpoint in the `run_dir`, with training state, can be resumed from (``resume="auto"``).

    Args:
        max_to_keep: how many of the latest checkpoints to keep; 0 or None for all.
        keep_checkpoint_every_n_hours: keep one of each so many hours besides.
        checkpoint_dir: where to save; by default the `run_dir` of the trainer.
        var_list: the variables to save; by default all that a checkpoint holds. With a list, no training state is
            saved.
        when: an `Every`: the times at which it saves; by default the end of each epoch.
        weights_only: save the variables without training state, at the moment of `trigger`.
        asynchronous: write the files in a thread while the training goes on. What is saved is one consistent picture of
            the moment all the same; it takes the memory of the variables once more until it is written. If the one
            before is not written yet, the training waits for it.
        on_failure: ``"raise"`` ends the training if a checkpoint cannot be written, ``"warn"`` logs it. The failure of
            an asynchronous write is met at the next checkpoint, or at the end of the training.

    Attributes:
        series: what writes the checkpoints; set when the training starts.
        weights_only: whether they hold variables only.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the training starts, if there is no
            directory, or two savers write the same files.
        CheckpointError: when the training starts, if the directory cannot be written to.

    Example:
        ```python
        callbacks=[tpk.ModelSaver(max_to_keep=3, when=tpk.Every(steps=1000), asynchronous=True)]
        ```
    """

    def __init__(
        self,
        max_to_keep: int | None = 10,
        keep_checkpoint_every_n_hours: float = 10_000,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        var_list: list[Any] | None = None,
        *,
        when: Every | None = None,
        weights_only: bool = False,
        asynchronous: bool = False,
        on_failure: str = "raise",
    ) -> None:
        check_at_least(self, 0, max_to_keep=max_to_keep)
        check_not_negative(self, keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours)
        check_flags(self, weights_only=weights_only, asynchronous=asynchronous)
        if not isinstance(when, Every | None):
            raise ConfigError(f"ModelSaver(when={when!r}): expected a tpk.Every, such as tpk.Every(steps=1000).")
        check_on_failure(on_failure)
        self._when = when
        self._checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self._var_list = var_list
        self.weights_only = weights_only or var_list is not None
        self._make_series = partial(
            CheckpointSeries,
            retention=Retention(max_to_keep, keep_checkpoint_every_n_hours),
            asynchronous=asynchronous,
            on_failure=on_failure,
        )
        self._variables: list[Any] = []
        self.series: CheckpointSeries

    @property
    def checkpoint_dir(self) -> Path:
        """Where the checkpoints are."""
        return directory_of(self, self._checkpoint_dir)

    @property
    def state_key(self) -> str:
        """What tells it from other savers when a training is resumed."""
        return "" if self._checkpoint_dir is None else str(self._checkpoint_dir)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of those times at which it saves."""
        hooks = super().hook_implementations()
        return hooks if self._when is None else self._when.hooks(self, hooks)

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Get ready to save, once every other callback has added its variables."""
        self.series = self._make_series(CheckpointDirectory(self.checkpoint_dir))
        trainer.checkpoints.register(self)
        self.series.prepare()
        self._variables = saveable_variables(trainer.graph) if self._var_list is None else self._var_list

    @hookimpl(trylast=True)
    def trigger(self, trainer: TrainerProtocol) -> None:
        """Ask for a checkpoint of this moment; variables without training state are saved at once."""
        if self.weights_only:
            trainer.checkpoints.before_saving()
            self.series.save(trainer.sess, self._variables, trainer.global_step)
            trainer.checkpoints.announce(self.series.directory.name_of(trainer.global_step))
        else:
            trainer.checkpoints.request(self.series)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Wait for what is being written."""
        self.series.close()

    def state_dict(self) -> dict[str, Any]:
        """Return which checkpoints are kept for good."""
        return self.series.retention.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the checkpoints that are there."""
        directory = self.series.directory
        names = [name for name in directory.names() if directory.step_of(name) <= self.global_step]
        self.series.retention.load_state_dict(state, names)


def directory_of(saver: Callback, checkpoint_dir: Path | None) -> Path:
    """Return where a saver saves: in its `checkpoint_dir`, if it has one, or in the `run_dir` of the trainer.

    Raises:
        ConfigError: if there is neither.
    """
    directory = saver.trainer.run_dir if checkpoint_dir is None else checkpoint_dir
    if directory is None:
        name = type(saver).__name__
        raise ConfigError(
            f"{name} has no directory to save in. Give the training a run_dir, or {name} a checkpoint_dir."
        )
    return directory
