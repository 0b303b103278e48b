"""Saver of the model, and with it of all that it takes to resume the training."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tpk.callbacks.statistics.followed import Statistic, StatisticFollower
from tpk.callbacks.triggers import Every, TimedCallback
from tpk.checkpoint.directory import CheckpointDirectory
from tpk.checkpoint.series import CheckpointSeries, Retention, check_on_failure
from tpk.checkpoint.variables import VariableWriter, take_snapshot
from tpk.checks import check_at_least, check_flags, check_not_negative
from tpk.errors import CheckpointError, ConfigError
from tpk.graph.variables import by_name, saveable_variables
from tpk.plugin import Callback, hookimpl
from tpk.tower.keras.model import KerasModel, check_weight_file

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


class ModelSaver(TimedCallback):
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
        check_on_failure(on_failure)
        super().__init__(when)
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


logger = logging.getLogger(__name__)


@attrs.frozen
class _Saved:
    """A checkpoint, and the value for which it was saved."""

    value: float
    name: str


class MinSaver(StatisticFollower, Callback):
    """Saves the variables when a statistic is less than it ever was, or is among the least.

    The files are called ``min-<statistic>-<global step>``; the best is what
    ``tf.train.latest_checkpoint(directory, "checkpoint-min-<statistic>")`` returns. They hold variables only: to resume
    a training, have a `ModelSaver` besides. A value that is NaN is never the best, and of equal ones the first is. A
    statistic that has not been reported by the first time it is looked at is a warning.

    Args:
        monitor_stat: a statistic that the monitors know, such as ``"validation_error"``.
        keep: how many of the best to keep.
        filename: what the files are called in place of ``min-<statistic>``.
        checkpoint_dir: where to save; by default the `run_dir` of the trainer.
        on_failure: ``"raise"`` ends the training if a checkpoint cannot be written, ``"warn"`` logs it.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the training starts, if there is no
            directory.

    Example:
        ```python
        callbacks=[
            tpk.ModelSaver(),
            tpk.InferenceRunner(test_batches, tpk.ClassificationError()),
            tpk.MinSaver("validation_error", keep=3),
        ]
        ```
    """

    _word, _sign = "min", 1.0

    def __init__(
        self,
        monitor_stat: str,
        keep: int = 1,
        filename: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        *,
        on_failure: str = "raise",
    ) -> None:
        check_at_least(self, 1, keep=keep)
        self.statistic = Statistic(monitor_stat, reverse=self._sign < 0)
        self._keep = keep
        self._prefix = filename or f"{self._word}-{monitor_stat}"
        self._checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self._failing = check_on_failure(on_failure)
        self._best: list[_Saved] = []
        self._directory: CheckpointDirectory
        self._variables: list[Any] = []
        self._writer = VariableWriter()

    @property
    def checkpoint_dir(self) -> Path:
        """Where the checkpoints are.

        Raises:
            ConfigError: if there is no place for them.
        """
        return directory_of(self, self._checkpoint_dir)

    @property
    def best(self) -> list[tuple[float, Path]]:
        """The values and the paths of the checkpoints that are kept, the best first."""
        return [(saved.value, self._directory.path / saved.name) for saved in self._best]

    @property
    def best_checkpoint(self) -> Path | None:
        """Where the best model is; None before there is one."""
        return self.best[0][1] if self._best else None

    @property
    def state_key(self) -> str:
        """What tells it from other savers when a training is resumed."""
        return self._prefix if self._checkpoint_dir is None else str(self._checkpoint_dir / self._prefix)

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Get ready to save, once every other callback has added its variables."""
        self._directory = CheckpointDirectory(self.checkpoint_dir, self._prefix, f"checkpoint-{self._prefix}")
        self._directory.prepare()
        self._variables = saveable_variables(trainer.graph)

    @hookimpl(trylast=True)
    def trigger(self, trainer: TrainerProtocol) -> None:
        """Save if there is a new value and it is among the best, after all that may write the statistic."""
        value = self.statistic.take_new(trainer.monitors)
        if value is None or math.isnan(value):
            return
        if len(self._best) == self._keep and not self._is_better(value, self._best[-1].value):
            return
        try:
            self._save(value)
        except CheckpointError as error:
            self._failing(error)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Let go of what it writes with."""
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the list of the best, and how much of the statistic has been looked at."""
        return {"best": [[saved.value, saved.name] for saved in self._best], "statistic": self.statistic.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back the list of the best; later files are removed, and those that are gone are left out."""
        self.statistic.load_state_dict(state["statistic"])
        known = self._directory.names()
        best = [_Saved(float(value), str(name)) for value, name in state["best"]]
        # An attempt that was killed may have removed a file for a better one that this attempt has yet to find.
        self._best = [saved for saved in best if saved.name in known][: self._keep]
        for saved in best:
            if saved.name not in known:
                logger.warning("%s is not there any more", self._directory.path / saved.name)
        kept = [saved.name for saved in self._best]
        self._point([each for each in known if each not in kept and self._directory.step_of(each) > self.global_step])

    def _save(self, value: float) -> None:
        self.trainer.checkpoints.before_saving()
        snapshot = take_snapshot(self.trainer.sess, self._variables)
        name = self._directory.write(self.global_step, lambda prefix: self._writer.write(prefix, snapshot), None)
        others = [saved for saved in self._best if saved.name != name]
        position = sum(not self._is_better(value, saved.value) for saved in others)
        ranked = [*others[:position], _Saved(value, name), *others[position:]]
        self._best, gone = ranked[: self._keep], ranked[self._keep :]
        self._point([saved.name for saved in gone])
        logger.debug("saved %s: %s is %.5g", name, self.statistic.name, value)
        self.trainer.checkpoints.announce(name)

    def _point(self, gone: Sequence[str]) -> None:
        self._directory.point_to([saved.name for saved in reversed(self._best)], gone)

    def _is_better(self, value: float, than: float) -> bool:
        return self._sign * value < self._sign * than


class MaxSaver(MinSaver):
    """Saves the variables when a statistic is greater than it ever was; else it is as `MinSaver`.

    The files are called ``max-<statistic>-<global step>``.
    """

    _word, _sign = "max", -1.0


class KerasSaver(Callback):
    """Writes a Keras model of the tower function, as it is at the end of each epoch, for plain Keras.

    The file replaces that of the epoch before. It is no checkpoint: a training is resumed from those of `ModelSaver`.

    Args:
        model: the model, which the tower function calls.
        path: a file ``….keras`` for the whole model, or ``….weights.h5``; by default ``model.keras``. A relative path
            is one in the directory of the run, if there is any.

    Attributes:
        written: the file, once it was written.

    Raises:
        ConfigError: if the file has another suffix, or `model` is no `KerasModel`.

    Example:
        ```python
        callbacks = [tpk.ModelSaver(), tpk.KerasSaver(digits.net, "digits.keras")]
        ```
    """

    def __init__(self, model: KerasModel, path: str | os.PathLike[str] = "model.keras") -> None:
        if not isinstance(model, KerasModel):
            raise ConfigError(f"KerasSaver was given {model!r}; expected the tpk.KerasModel of the tower function.")
        check_weight_file(path)
        self._model = model
        self._path = Path(path)
        self.written: Path | None = None
        self._variables: dict[str, Any] = {}

    @property
    def path(self) -> Path:
        """Where it writes."""
        run_dir = self.trainer.run_dir
        return self._path if run_dir is None else run_dir / self._path

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the variables.

        Raises:
            TowerError: if the tower function does not call the model.
        """
        variables = by_name(saveable_variables(trainer.graph))
        self._variables = {name: variables[name] for name in self._model.variable_names(trainer.graph)}

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Write the model."""
        values = trainer.sess.run(self._variables)
        self._model.save(self.path, values, trainer.graph)
        self.written = self.path
        logger.info("wrote the Keras model to %s", self.written)
