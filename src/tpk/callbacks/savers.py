"""Callbacks that save the model: checkpoints to resume from, and the best models."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tpk
from tpk.argument_checks import check_at_least, check_flags, check_not_negative, check_one_of, given
from tpk.callbacks.statistics.followed import StatisticFollower
from tpk.callbacks.triggers import Every, TimedCallback
from tpk.checkpoint.checkpoint_directory import CheckpointDirectory
from tpk.checkpoint.series import ON_FAILURE, CheckpointSeries, Retention, handle_failure
from tpk.checkpoint.variable_writer import VariableWriter
from tpk.errors import CheckpointError
from tpk.graph.variables import saveable_variables
from tpk.plugin import hookimpl
from tpk.plugin.callback import in_run_dir
from tpk.plugin.creation import also_spelled

logger = logging.getLogger(__name__)


class ModelSaver(TimedCallback):
    """Saves checkpoints: the variables as ``model-<global step>``, and the state needed to resume the training run.

    It saves at the end of each epoch, at the times of `when`, or when a `PeriodicTrigger` triggers it. A checkpoint is
    taken after all callbacks and monitors are done with that step or epoch, wherever in the list the saver is. The
    files of the variables have the format of `tf.compat.v1.train.Saver`.

    A run can only be resumed (``resume="auto"``) from a checkpoint in its `run_dir` that has training state.

    Args:
        max_to_keep: the number of latest checkpoints to keep; 0 or None for all.
        keep_checkpoint_every_n_hours: also keep one checkpoint for each period of this many hours.
        checkpoint_dir: the directory; by default the `run_dir` of the trainer.
        var_list: the variables to save; by default all variables that belong in a checkpoint. With a list, no training
            state is saved.
        when: an `Every`: the times at which it saves; by default the end of each epoch.
        weights_only: save the variables without training state, immediately in `trigger`.
        asynchronous: write the files in a thread while training continues. All values are still from one moment;
            until they are written, they need as much memory as the variables. The training run waits
            until the previous checkpoint is written.
        on_failure: ``"raise"`` ends the run if a checkpoint cannot be written, ``"warn"`` logs it. The failure of an
            asynchronous write is noticed at the next checkpoint, or at the end of the run.

    Attributes:
        series: writes the checkpoints; set in `setup_graph`.
        weights_only: whether the checkpoints contain only variables.

    Raises:
        ConfigError: if an option is invalid; and, when training starts, if the directory is missing, or two savers
            write the same files.
        CheckpointError: when training starts, if the directory is not writable.

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
        check_at_least(self, 0, **given(max_to_keep=max_to_keep))
        check_not_negative(self, keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours)
        check_flags(self, weights_only=weights_only, asynchronous=asynchronous)
        check_one_of(self, ON_FAILURE, on_failure=on_failure)
        super().__init__(when)
        self._checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.state_key = "" if self._checkpoint_dir is None else str(self._checkpoint_dir)
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
        """The directory of the checkpoints."""
        return in_run_dir(self) if self._checkpoint_dir is None else self._checkpoint_dir

    def leave_out_state(self) -> None:
        """Save only variables from now on."""
        self.weights_only = True

    @hookimpl(trylast=True)  # Other callbacks may add variables.
    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Prepare the directory, and find the variables."""
        self.series = self._make_series(CheckpointDirectory(self.checkpoint_dir))
        trainer.checkpoints.register(self)
        self.series.prepare()
        self._variables = saveable_variables(trainer.graph) if self._var_list is None else self._var_list

    @hookimpl(trylast=True)
    def trigger(self, trainer: tpk.Trainer) -> None:
        """Request a checkpoint of this moment; save variables without training state immediately."""
        if self.weights_only:
            trainer.checkpoints.before_saving()
            self.series.save(trainer.sess, self._variables, trainer.global_step)
            trainer.checkpoints.announce(self.series.directory.name_of(trainer.global_step))
        else:
            trainer.checkpoints.request(self.series)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Wait until everything is written."""
        self.series.close()

    def state_dict(self) -> dict[str, Any]:
        """Return which checkpoints are kept permanently."""
        return self.series.retention.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the checkpoints in the directory."""
        directory = self.series.directory
        names = [name for name in directory.names() if directory.step_of(name) <= self.global_step]
        self.series.retention.load_state_dict(state, names)


@also_spelled({"monitor": "monitor_stat", "save_top_k": "keep"})
class MinSaver(StatisticFollower):
    """Saves the variables when a statistic has reached a new minimum, or is among the `keep` smallest values.

    The files are called ``min-<statistic>-<global step>``;
    ``tf.train.latest_checkpoint(directory, "checkpoint-min-<statistic>")`` returns the best one. They contain only
    variables; to be able to resume a run, also use a `ModelSaver`. NaN is never the best value, and the first of equal
    values wins. If the statistic is still unknown when it is first needed, the log has a warning.

    Args:
        monitor_stat: the name of a statistic that is reported to the monitors, such as ``"validation_error"``.
        keep: the number of best models to keep.
        filename: the prefix of the files instead of ``min-<statistic>``.
        checkpoint_dir: the directory; by default the `run_dir` of the trainer.
        on_failure: ``"raise"`` ends the run if a checkpoint cannot be written, ``"warn"`` logs it.

    Raises:
        ConfigError: if an option is invalid; and, when training starts, if the directory is missing.

    Example:
        ```python
        callbacks=[
            tpk.ModelSaver(),
            tpk.InferenceRunner(test_batches, tpk.ClassificationError()),
            tpk.MinSaver("validation_error", keep=3),
        ]
        ```
    """

    state_attributes = ("_best",)
    _mode = "min"

    def __init__(
        self,
        monitor_stat: str,
        keep: int = 1,
        filename: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        *,
        on_failure: str = "raise",
    ) -> None:
        super().__init__(monitor_stat, self._mode)
        check_at_least(self, 1, keep=keep)
        self._keep = keep
        self._prefix = filename or f"{self._mode}-{monitor_stat}"
        self._checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.state_key = str(Path(checkpoint_dir or "", self._prefix))
        check_one_of(self, ON_FAILURE, on_failure=on_failure)
        self._on_failure = on_failure
        # The values and the names of the checkpoints that are kept, best first.
        self._best: list[tuple[float, str]] = []
        self._directory: CheckpointDirectory
        self._variables: list[Any] = []
        self._writer = VariableWriter()

    @property
    def checkpoint_dir(self) -> Path:
        """The directory of the checkpoints."""
        return in_run_dir(self) if self._checkpoint_dir is None else self._checkpoint_dir

    @property
    def best(self) -> list[tuple[float, Path]]:
        """The values and the paths of the checkpoints that are kept, best first."""
        return [(value, self._directory.path / name) for value, name in self._best]

    @property
    def best_checkpoint(self) -> Path | None:
        """The checkpoint of the best value, if there is one."""
        return self.best[0][1] if self._best else None

    @hookimpl(trylast=True)  # Other callbacks may add variables.
    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Prepare the directory, and find the variables."""
        self._directory = CheckpointDirectory(self.checkpoint_dir, self._prefix, f"checkpoint-{self._prefix}")
        self._directory.prepare()
        self._variables = saveable_variables(trainer.graph)

    @hookimpl(trylast=True)  # Other callbacks may report the statistic.
    def trigger(self, trainer: tpk.Trainer) -> None:
        """Save the variables if the statistic has a new value that is among the best."""
        value = self.take_new()
        if value is None or math.isnan(value):
            return
        if len(self._best) == self._keep and self.sign * value >= self.sign * self._best[-1][0]:
            return
        try:
            self._save(value)
        except CheckpointError as error:
            handle_failure(error, self._on_failure)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Release the writer."""
        self._writer.close()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the best values; files of later steps are removed, and missing files are ignored."""
        super().load_state_dict(state)
        known = self._directory.names()
        best = self._best
        # A killed run may have removed a file in favor of a better one that this run has yet to reach.
        self._best = [(value, name) for value, name in best if name in known][: self._keep]
        for _, name in best:
            if name not in known:
                logger.warning("%s is not there any more", self._directory.path / name)
        kept = [name for _, name in self._best]
        self._point([each for each in known if each not in kept and self._directory.step_of(each) > self.global_step])

    def _save(self, value: float) -> None:
        self.trainer.checkpoints.before_saving()
        values = self.trainer.sess.run(self._variables)
        write = partial(self._writer.write, variables=self._variables, values=values)
        name = self._directory.write(self.global_step, write, None)
        others = [(other, saved) for other, saved in self._best if saved != name]
        # The sort is stable, so the first of equal values wins.
        ranked = sorted([*others, (value, name)], key=lambda saved: self.sign * saved[0])
        self._best = ranked[: self._keep]
        self._point([name for _, name in ranked[self._keep :]])
        logger.debug("saved %s: %s is %.5g", name, self.statistic, value)
        self.trainer.checkpoints.announce(name)

    def _point(self, gone: Sequence[str]) -> None:
        self._directory.point_to([name for _, name in reversed(self._best)], gone)


class MaxSaver(MinSaver):
    """Saves the variables when a statistic has reached a new maximum; otherwise like `MinSaver`.

    The files are called ``max-<statistic>-<global step>``.
    """

    _mode = "max"
