"""The record of one attempt at a run: where it is kept, where it starts from, and how it ends."""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs

import tpk
from tpk.checkpoint.files import Checkpoint
from tpk.errors import CheckpointError, TpkError
from tpk.plugin.callback import Callback
from tpk.plugin.recorded_options import described
from tpk.train.epoch import steps_of_one_pass
from tpk.train.resume.state import Resumption
from tpk.train.run.attempts import Attempt, read_attempts, write_attempts
from tpk.train.run.names import ATTEMPTS_NAME
from tpk.train.run.report import known_directions, outcome_of
from tpk.train.run.run_description import describe_run
from tpk.train.run.run_directory import (
    check_resume,
    find_start,
    open_directory,
    run_log,
    write_config,
    write_run_file,
)

if TYPE_CHECKING:
    from tpk.plugin.run_settings import RunSettings

logger = logging.getLogger(__name__)


class RunRecord:
    """One attempt at a run: its directory, lock and log, ``config.json``, the checkpoint to start from, the outcome.

    A context manager. When it exits, it records the outcome, and closes the log and the directory. Nothing is opened
    before `open`. Only the chief process has a directory.

    Args:
        trainer: the trainer.
        settings: the length and the directory of the run, and the contents of its files; callbacks may change them.
        is_one_pass: whether an epoch is one pass over the data, regardless of the settings.
        clock: returns the seconds since 1970.

    Raises:
        ConfigError: if an option is invalid.

    Attributes:
        directory: the directory in which this process writes the files of the run; None before `open`, and if there is
            none.
    """

    def __init__(
        self,
        trainer: tpk.Trainer,
        settings: RunSettings,
        *,
        is_one_pass: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trainer = trainer
        self._settings = settings
        self._is_one_pass = is_one_pass
        self._clock = clock
        self._files = settings.resources
        self._earlier: list[Attempt] = []
        self._attempt: Attempt | None = None
        self._starts_over = False
        self.directory: Path | None = None
        self._check_settings()

    def open(self, callbacks: Sequence[Any], monitors: Sequence[Any]) -> Resumption | None:
        """Open the directory and the log, find the checkpoint to resume from, and describe the run in ``config.json``.

        Args:
            callbacks: all callbacks of the training; they may change the settings first.
            monitors: all monitors of the training.

        Returns:
            The resumption of the training; None if it starts from the beginning.

        Raises:
            ConfigError: if an option is invalid, or the directory cannot be used for this run.
            CheckpointError: if a checkpoint is required and missing; in all processes.
        """
        self._configure(callbacks)
        is_chief = self._trainer.is_chief
        if self._settings.run_dir is not None and is_chief:
            self.directory = Path(self._settings.run_dir)
            open_directory(self.directory, self._settings.resume, self._files, may_hold_run=self._settings.may_hold_run)
        self._files.enter_context(run_log(self.directory, logging.INFO if is_chief else logging.WARNING))
        if self.directory is not None:
            logger.info("run_dir: %s", self.directory)
        start = None if self._settings.resume == "never" else self._find_common_start()
        if start is not None and self._settings.description.get("session_init") is not None:
            logger.info("session_init is not applied, because the run is resumed")
        self._starts_over = self._settings.resume == "auto" and start is None
        resumption = None if start is None else Resumption(start)
        if self.directory is None:
            return resumption
        if self._starts_over:
            logger.info("no complete checkpoint found; starting from the beginning")
        given = {name: described(value) for name, value in self._settings.description.items()}
        write_config(self.directory, {**describe_run(self._trainer, callbacks, monitors), **given})
        write_run_file(self.directory, self._settings.run_file)
        self._write_attempt(self.directory, start)
        return resumption

    def begin(self) -> None:
        """Record the directions of statistics, and let monitors set aside an attempt that left no checkpoint.

        Called when the training has been set up.
        """
        if self._starts_over:
            self._trainer.monitors.start_over()
        if self._attempt is not None:
            self._write(attrs.evolve(self._attempt, directions=known_directions(self._trainer)))

    def __enter__(self) -> RunRecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._files:
            if isinstance(failure, TpkError):
                logger.debug("the whole traceback of the error:", exc_info=failure)
            if self._attempt is not None:
                end, reason = outcome_of(self._trainer, failure)
                # Before that, the trainer has no checkpoints.
                last = self._trainer.checkpoints.last_path if self._trainer.phases.has("initialize") else None
                self._write(
                    attrs.evolve(
                        self._attempt,
                        ended=self._clock(),
                        end=end,
                        reason=reason,
                        epoch=self._trainer.epoch_num,
                        step=self._trainer.global_step,
                        checkpoint=None if last is None else Path(last).name,
                    )
                )

    def _configure(self, callbacks: Sequence[Any]) -> None:
        """Let the callbacks change the settings."""
        if self._is_one_pass:
            self._settings.steps_per_epoch = steps_of_one_pass(self._trainer)
        for callback in callbacks:
            if isinstance(callback, Callback):
                callback.configure_run(self._settings)
        self._check_settings()

    def _check_settings(self) -> None:
        """Check the settings, and tell the loop how long the training is."""
        settings, loop = self._settings, self._trainer.loop
        check_resume(settings.resume, settings.run_dir)
        loop.set_epochs(settings.steps_per_epoch, settings.starting_epoch, settings.max_epoch)
        settings.steps_per_epoch = loop.steps_per_epoch
        settings.starting_epoch, settings.max_epoch = loop.starting_epoch, loop.max_epoch

    def _find_common_start(self) -> Checkpoint | None:
        """Return, in all processes, the checkpoint that the chief finds."""
        found, failure = None, None
        if self._trainer.is_chief and self._settings.run_dir is not None:
            try:
                found = find_start(self._settings.resume, self._settings.run_dir)
            except CheckpointError as error:
                failure = error
        fields = None if found is None else {**attrs.asdict(found, recurse=False), "directory": str(found.directory)}
        answer = (fields, None if failure is None else str(failure))
        process_group = self._trainer.strategy.process_group
        fields, message = process_group.broadcast_object("the checkpoint to resume from", answer)
        if message is not None:
            raise failure or CheckpointError(message)
        return None if fields is None else Checkpoint(**fields)

    def _write_attempt(self, directory: Path, start: Checkpoint | None) -> None:
        """Record the start of the attempt, so that it is on disk even if the process is killed."""
        try:
            self._earlier = read_attempts(directory)
        except TpkError as error:
            logger.warning("%s", error)
        self._write(
            Attempt(
                began=self._clock(),
                host=platform.node(),
                pid=os.getpid(),
                cwd=os.getcwd(),
                argv=list(sys.argv) if os.path.isfile(sys.argv[0]) else None,
                from_step=None if start is None else start.step,
            )
        )

    def _write(self, attempt: Attempt) -> None:
        """Write the attempts. A failure to do so does not end the training, nor hide the error that ended it."""
        assert self.directory is not None
        self._attempt = attempt
        try:
            write_attempts(self.directory, [*self._earlier, attempt])
        except OSError as error:
            path = self.directory / ATTEMPTS_NAME
            logger.warning("%s could not be written (%s): `tpk runs` will not know how this training went", path, error)
