"""Saving the model, and with it all that it takes to resume the training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.callbacks.period import check_period
from tpk.checkpoint.directory import CheckpointDirectory
from tpk.checkpoint.series import CheckpointSeries, Retention
from tpk.errors import ConfigError
from tpk.graph.variables import saveable_variables
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer


class ModelSaver(Callback):
    """Saves checkpoints: the variables as ``model-<global step>``, and what else it takes to resume the training.

    It saves at the end of each epoch, or at the times that `every_k_epochs`, `every_k_steps` and `every_n_minutes` say;
    or when `PeriodicTrigger` does. A checkpoint is taken after all callbacks and monitors have done their part of that
    step or epoch, wherever in the list this one stands. The variables' files are those of `tf.compat.v1.train.Saver`.

    Only a checkpoint in the `run_dir`, with training state, can be resumed from (``resume="auto"``).

    Args:
        max_to_keep: how many of the latest checkpoints to keep; 0 or None for all.
        keep_checkpoint_every_n_hours: keep one of each so many hours besides.
        checkpoint_dir: where to save; by default the `run_dir` of the trainer.
        var_list: the variables to save; by default all that a checkpoint holds. With a list, no training state is
            saved.
        every_k_epochs: save at the end of epochs whose number is a multiple of it.
        every_k_steps: save when `global_step` has passed a multiple of it.
        every_n_minutes: save after the step in which so many minutes have passed since it saved last.
        weights_only: save the variables without training state, at the moment of `trigger`.
        asynchronous: write the files in a thread while the training goes on. What is saved is one consistent picture of
            the moment all the same; it takes the memory of the variables once more until it is written. If the one
            before is not written yet, the training waits for it.
        on_failure: ``"raise"`` ends the training if a checkpoint cannot be written, ``"warn"`` logs it. The failure of
            an asynchronous write is met at the next checkpoint, or at the end of the training.
        clock: returns the time in seconds, for `every_n_minutes`.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the training starts, if there is no
            directory, or two savers write the same files.
        CheckpointError: when the training starts, if the directory cannot be written to.

    Example:
        ```python
        callbacks=[tpk.ModelSaver(max_to_keep=3, every_k_steps=1000, asynchronous=True)]
        ```
    """

    def __init__(
        self,
        max_to_keep: int | None = 10,
        keep_checkpoint_every_n_hours: float = 10_000,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        var_list: list[Any] | None = None,
        *,
        every_k_epochs: int | None = None,
        every_k_steps: int | None = None,
        every_n_minutes: float | None = None,
        weights_only: bool = False,
        asynchronous: bool = False,
        on_failure: str = "raise",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_to_keep is not None and max_to_keep < 0:
            raise ConfigError(f"ModelSaver(max_to_keep={max_to_keep}): expected a positive number, or 0 for all.")
        if every_n_minutes is not None and every_n_minutes <= 0:
            raise ConfigError(f"ModelSaver(every_n_minutes={every_n_minutes}): expected a positive number.")
        self._every_k_steps = check_period("every_k_steps", every_k_steps)
        self._every_k_epochs = check_period("every_k_epochs", every_k_epochs)
        if every_k_epochs is None and every_k_steps is None and every_n_minutes is None:
            self._every_k_epochs = 1
        self._seconds = None if every_n_minutes is None else 60 * every_n_minutes
        self._retention = Retention(max_to_keep, keep_checkpoint_every_n_hours)
        self._checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self._var_list = var_list
        self.weights_only = weights_only or var_list is not None
        self._asynchronous = asynchronous
        self._on_failure = on_failure
        self._clock = clock
        self._saved_at = 0.0
        self._period_of_steps = 0
        self._variables: list[Any] = []
        # Made before the directory is known, to find out early about wrong options.
        self._series = self._make_series(Path())

    @property
    def checkpoint_dir(self) -> Path:
        """Where the checkpoints are."""
        directory = self._checkpoint_dir if self._checkpoint_dir is not None else self.trainer.run_dir
        if directory is None:
            raise ConfigError(
                "ModelSaver has no directory to save in. Give the training a run_dir, or ModelSaver a checkpoint_dir."
            )
        return directory

    @property
    def state_key(self) -> str:
        """What tells it from other savers when a training is resumed."""
        return "" if self._checkpoint_dir is None else str(self._checkpoint_dir)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of those times at which it saves."""
        hooks = super().hook_implementations()
        if self._every_k_epochs is None:
            del hooks["trigger_epoch"]
        elif self._every_k_epochs > 1:
            hooks["trigger_epoch"] = self._every_few_epochs()
        if self._every_k_steps is None and self._seconds is None:
            del hooks["trigger_step"]
        return hooks

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: Trainer) -> None:
        """Get ready to save, once every other callback has added its variables."""
        trainer.checkpoints.register(self)
        self._series = self._make_series(self.checkpoint_dir)
        self._series.prepare()
        self._variables = saveable_variables(trainer.graph) if self._var_list is None else self._var_list

    def before_train(self, trainer: Trainer) -> None:
        """Begin to count steps and minutes."""
        self._saved_at = self._clock()
        if self._every_k_steps is not None:
            self._period_of_steps = trainer.global_step // self._every_k_steps

    @hookimpl(trylast=True)
    def trigger_step(self, trainer: Trainer) -> None:
        """Save if so many steps or minutes have passed."""
        if self._every_k_steps is not None:
            # A step may run the session more than once, so `global_step` may jump over a multiple.
            period = trainer.global_step // self._every_k_steps
            if period != self._period_of_steps:
                self._period_of_steps = period
                self.trigger()
                return
        if self._seconds is not None and self._clock() - self._saved_at >= self._seconds:
            self.trigger()

    @hookimpl(trylast=True)
    def trigger(self) -> None:
        """Ask for a checkpoint of this moment; variables without training state are saved at once."""
        self._saved_at = self._clock()
        if self.weights_only:
            self.trainer.checkpoints.before_saving()
            self._series.save(self.trainer.sess, self._variables, self.global_step, None)
        else:
            self.trainer.checkpoints.request(self.save)

    def save(self, state: Mapping[str, Any]) -> Path | None:
        """Save a checkpoint with this training state, encoded; called when everybody has done their part.

        Returns:
            The path of the latest checkpoint that is known to be on disk.
        """
        self._series.save(self.trainer.sess, self.trainer.checkpoints.variables, self.global_step, state)
        return self._series.last_path

    def wait(self) -> Path | None:
        """Wait for what is being written, and return the path of the latest checkpoint."""
        self._series.wait()
        return self._series.last_path

    def after_train(self, trainer: Trainer) -> None:
        """Wait for what is being written."""
        self._series.close()

    def state_dict(self) -> dict[str, Any]:
        """Return which checkpoints are kept for good."""
        return self._retention.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the checkpoints that are there."""
        names = self._series.directory.names()
        self._retention.load_state_dict(state, [name for name in names if self._is_not_ahead(name)])

    def _is_not_ahead(self, name: str) -> bool:
        return self._series.directory.step_of(name) <= self.global_step

    def _make_series(self, directory: Path) -> CheckpointSeries:
        return CheckpointSeries(
            CheckpointDirectory(directory),
            self._retention,
            asynchronous=self._asynchronous,
            on_failure=self._on_failure,
        )

    def _every_few_epochs(self) -> Callable[[], None]:
        # Wrapping leads the hook manager to the options of `trigger`, which comes last.
        @wraps(self.trigger)
        def trigger_epoch() -> None:
            if self.epoch_num % (self._every_k_epochs or 1) == 0:
                self.trigger()

        return trigger_epoch
