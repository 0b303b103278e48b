"""When checkpoints are taken: at the end of a step or an epoch, after every plugin has done its part of it.

The end of an epoch, in order. Within each group, plugins are called in the order of the list:

```
hooks.after_epoch              callbacks, then monitors
means over the epoch           of the scalars that run_step has reported
hooks.trigger_epoch
    wrappers before `yield`
    tryfirst callbacks
    unmarked callbacks         most of them: they evaluate, and report statistics
    trylast callbacks          they read statistics: MinSaver writes its model, ModelSaver requests a checkpoint
    monitors                   they write the statistics of the epoch
    Checkpoints                if one was requested: hooks.before_checkpoint; the training state is taken; then the
                               variables, the training state and the pointer are written
    wrappers after `yield`
a requested stop               ends the training
```

`trigger_step` has the same order, without wrappers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tpk
from tpk.checkpoint.checkpoint_directory import CheckpointDirectory
from tpk.checkpoint.files import Checkpoint, newest_complete, newest_present
from tpk.checkpoint.series import CheckpointSeries, Retention
from tpk.checkpoint.variable_writer import assign_by_name, read_variables
from tpk.errors import CheckpointError, ConfigError
from tpk.graph.step_counter import get_global_step_var
from tpk.graph.variables import saveable_variables, variable_name
from tpk.plugin import Callback, hookimpl
from tpk.plugin.callback import trigger_of
from tpk.train.resume.state import take_state
from tpk.train.run.run_directory import check_is_there

logger = logging.getLogger(__name__)


class Checkpoints(Callback):
    """Takes the checkpoints that savers request, after all callbacks and monitors; the module shows the order.

    If a checkpoint were taken earlier, a resumed training would skip or repeat what comes later in the same step or
    epoch. So savers only `request` one, and the trainer registers this callback last. That makes its wrapper of
    ``trigger_epoch`` the innermost: other wrappers continue after the checkpoint. The path of a save::

        ModelSaver.trigger → request → (the end of the step or epoch) → take_state → CheckpointSeries.save
            → (here, or in a thread) CheckpointDirectory.write, with VariableWriter, and .point_to

    A training without savers has no hook in the step. Requests are then served at the end of the epoch.

    Args:
        trainer: the trainer.

    Attributes:
        agreed_stop: the request to end the training: that of the loop, or with several processes the one on which they
            have agreed.
    """

    def __init__(self, trainer: tpk.Trainer) -> None:
        self.trainer = trainer
        self.unused_hooks: Collection[str] = ("trigger_step",)
        self.agreed_stop = trainer.loop.stop
        self._savers: list[tpk.ModelSaver] = []
        self._requests: list[CheckpointSeries] = []
        self._epoch_that_is_over: int | None = None
        self._is_ending_epoch = False
        self._announcements: deque[str] = deque(maxlen=10)
        self._first_step = 0
        self._taken: tuple[Any, Sequence[CheckpointSeries]] = (None, ())
        self._own_series: CheckpointSeries | None = None
        self._states_of_others: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def shared_variables(self) -> list[Any]:
        """The variables that every checkpoint of the model contains; known when the graph is complete."""
        return saveable_variables(self.trainer.graph)

    @cached_property
    def variables(self) -> list[Any]:
        """The shared variables, and the local ones of each replica of the model."""
        return [*self.shared_variables, *self.trainer.strategy.replicate_variables()]

    def register(self, saver: tpk.ModelSaver) -> None:
        """Add a saver; called in its `setup_graph`.

        Raises:
            ConfigError: if another saver writes the same files.
        """
        directory = _directory(saver)
        for other in self._savers:
            if _directory(other) == directory:
                raise ConfigError(
                    f"{other.plugin_name} and {saver.plugin_name} both save in {str(directory)!r}, and would overwrite "
                    "each other's files. Give one of them another checkpoint_dir."
                )
        self._savers.append(saver)
        self.unused_hooks = ()

    def request(self, series: CheckpointSeries) -> None:
        """Request a checkpoint of this moment. It is taken when all other plugins have been called."""
        if series not in self._requests:
            self._requests.append(series)
            self.announce(series.directory.name_of(self.trainer.global_step))

    def announce(self, name: str) -> None:
        """Announce that a checkpoint is being saved: in the summary of an ending epoch, otherwise in the log."""
        if self._is_ending_epoch:
            self._announcements.append(name)
        else:
            logger.info("saving %s", name)

    def take_announcements(self) -> list[str]:
        """Return the names of the checkpoints of this end of an epoch; the caller prints them."""
        names = list(self._announcements)
        self._announcements.clear()
        return names

    def before_saving(self) -> None:
        """Call the hook ``before_checkpoint``, which raises an error to prevent the checkpoint."""
        self.trainer.loop.sync()
        self.trainer.hooks.hook.before_checkpoint()

    def newest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint of this training, or None. Wait for those that are being written."""
        return self._newest(newest_complete)

    def newest_prefix(self) -> str | None:
        """Return the path of `newest`, for a message: the files of its variables, maybe gigabytes, are not read."""
        found = self._newest(newest_present)
        return found.prefix if found else None

    def _newest(self, newest_in: Callable[[Path], Checkpoint | None]) -> Checkpoint | None:
        for series in self._full_series:
            try:
                series.wait()
            except CheckpointError as error:
                logger.error("%s", error)
        run_dir = self.trainer.run_dir
        directories = [series.directory.path for series in self._full_series]
        found = map(newest_in, dict.fromkeys(directories if run_dir is None else [run_dir, *directories]))
        return next(filter(None, found), None)

    @property
    def last_path(self) -> Path | None:
        """The path of the latest checkpoint that this training has written; None before the first."""
        own = [] if self._own_series is None else [self._own_series]
        series = [*own, *(saver.series for saver in self._savers)]
        written = [(each.directory.step_of(each.last_path.name), each.last_path) for each in series if each.last_path]
        return max(written, default=(0, None))[1]

    def restore_variables(self, prefix: str) -> None:
        """Assign the values of a checkpoint to all variables but the global step, in the middle of the training.

        The training continues: the counters, the data and the callbacks do not go back.

        Raises:
            CheckpointError: if the files cannot be read.
        """
        values = read_variables(prefix, self.variables)
        values.pop(variable_name(get_global_step_var()), None)
        self.assign(values)

    def assign(self, values: Mapping[str, Any]) -> None:
        """Assign values to variables by name; replicas of the model become copies of the first one."""
        assign_by_name(self.trainer.sess, values, self.shared_variables)
        self.trainer.strategy.after_restore(self.trainer.sess)
        # The local variables of replicas come last, because `after_restore` overwrites them.
        shared = {variable_name(variable) for variable in self.shared_variables}
        own = [variable for variable in self.variables if variable_name(variable) not in shared]
        assign_by_name(self.trainer.sess, values, own)

    def forget_requests(self) -> None:
        """Drop requests that were not served yet."""
        self._requests.clear()

    def save_now(self) -> Path | None:
        """Save a checkpoint of this moment, between two steps or epochs, and wait until it is on disk.

        It is saved in the `run_dir`, from which the training can be resumed, or else in the directory of a saver.

        Returns:
            Its path, or None if there is no such directory.

        Raises:
            CheckpointError: if it could not be written.
        """
        series = self._series_of_run()
        if series is None:
            return None
        moment, written = self._taken
        if moment != self._moment() or series not in written:
            self.request(series)
            self._take()
        return series.wait()

    @hookimpl(trylast=True)
    def before_train(self, trainer: tpk.Trainer) -> None:
        """Take a checkpoint of the beginning, if one was requested."""
        self._epoch_that_is_over = trainer.loop.starting_epoch - 1
        self._first_step = trainer.global_step
        self._warn_of_savers_elsewhere(trainer)
        # A training that is resumed within an epoch is restored only after `before_epoch`.
        if self._epoch_is_over:
            self._serve_requests()

    @hookimpl(trylast=True)
    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Take a checkpoint, if one was requested in this step."""
        if self._requests:
            self._serve_requests()

    @hookimpl(wrapper=True)
    def trigger_epoch(self, trainer: tpk.Trainer) -> Generator[None, Any, Any]:  # type: ignore[override]
        """Take a checkpoint, if one was requested at the end of this epoch."""
        self._check_run_dir()
        self._is_ending_epoch = True
        try:
            result = yield
        finally:
            self._is_ending_epoch = False
        self._epoch_that_is_over = trainer.epoch_num
        self._serve_requests()
        return result

    @hookimpl(tryfirst=True)
    def after_train(self, trainer: tpk.Trainer) -> None:
        """Take a checkpoint of the last step, if the training ends normally and the savers have not saved it."""
        try:
            if trainer.loop.failure is None:
                self._check_run_dir()
                for saver in self._savers:
                    saved = saver.series.last_step
                    if trainer.global_step != (self._first_step if saved is None else saved):
                        trigger_of(saver)(trainer)
                self._serve_requests()
        finally:
            if self._own_series is not None:
                self._own_series.close()

    def _serve_requests(self) -> None:
        """Take the requested checkpoints; several processes agree on it first."""
        self._take()

    def _take(self) -> None:
        """Take the requested checkpoints of this moment."""
        if not self._requests:
            return
        requests, self._requests = self._requests, []
        self._check_run_dir()
        self.before_saving()
        trainer = self.trainer
        state = take_state(trainer, self._epoch_is_over, self._states_of_others)
        for series in requests:
            series.save(trainer.sess, self.variables, trainer.global_step, state)
        self._taken = self._moment(), requests

    def _check_run_dir(self) -> None:
        if self.trainer.run_dir is not None:
            check_is_there(self.trainer.run_dir)

    @property
    def _epoch_is_over(self) -> bool:
        return self._epoch_that_is_over == self.trainer.epoch_num

    def _moment(self) -> tuple[Any, ...]:
        return (*self.trainer.loop.progress.state_dict().values(), self._epoch_is_over)

    @property
    def _full_series(self) -> list[CheckpointSeries]:
        """The series whose checkpoints contain the training state."""
        return [saver.series for saver in self._savers if not saver.weights_only]

    def _series_of_run(self) -> CheckpointSeries | None:
        """Return the series in the `run_dir`; without a `run_dir`, any series with the training state."""
        run_dir = self.trainer.run_dir
        if run_dir is None:
            return next(iter(self._full_series), None)
        there = [saver for saver in self._savers if _directory(saver) == run_dir.resolve()]
        for saver in there:
            if not saver.weights_only:
                return saver.series
        # A training without a saver in the run_dir can also be preempted.
        self._own_series = CheckpointSeries(CheckpointDirectory(run_dir), Retention(0 if there else 2, float("inf")))
        self._own_series.prepare()
        self._own_series.retention.latest = tuple(self._own_series.directory.names())
        return self._own_series

    def _warn_of_savers_elsewhere(self, trainer: tpk.Trainer) -> None:
        full = [saver for saver in self._savers if not saver.weights_only]
        run_dir = trainer.run_dir
        if run_dir is not None and full and all(_directory(saver) != run_dir.resolve() for saver in full):
            logger.warning(
                "checkpoints go to %s only; resume=... looks for them in the run_dir, %s",
                ", ".join(str(saver.series.directory.path) for saver in full),
                run_dir,
            )


def _directory(saver: tpk.ModelSaver) -> Path:
    return saver.series.directory.path.resolve()
