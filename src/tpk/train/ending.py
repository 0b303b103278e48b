"""Ends of a training: what the log says of each, and how to go on from there."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from tpk.errors import Preempted, StopTraining, add_note, in_one_line
from tpk.train.run_dir.names import RUN_FILE_NAME, is_own_command

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


def log_end(trainer: TrainerProtocol, end: Exception) -> None:
    """Log, in one line, by what a training ends in good order before its last epoch."""
    if isinstance(end, StopTraining):
        logger.info("training ended %s: %s", steps_done(trainer), end)
    else:
        # That of TensorFlow is a page about the graph.
        reason = f": {end}" if "\n" not in f"{end}" else ""
        logger.info("the data ended %s%s", steps_done(trainer), reason)
        logger.debug("the end of the data: %s", end)


def log_failure(trainer: TrainerProtocol, failure: BaseException) -> None:
    """Log by what a training ends otherwise, unless that was said when what there is was saved."""
    if isinstance(failure, Preempted):
        return
    if isinstance(failure, KeyboardInterrupt):
        if failure.args:
            return
        newest = trainer.checkpoints.newest()
        logger.warning("interrupted %s; %s", steps_done(trainer), what_is_saved(trainer, newest and newest.prefix))
        return
    notes = "".join(f"; {note}" for note in getattr(failure, "__notes__", ()))
    logger.error("training failed in %s: %s%s", trainer.loop.progress, in_one_line(failure), notes)
    if isinstance(failure, tf.errors.OpError):  # A page; the traceback ends with what matters of it.
        add_note(failure, in_one_line(failure))


def signal_message(trainer: TrainerProtocol, signum: int, saved: Path | None) -> str:
    """Return the one line that says that a signal ends a training, what was saved, and how to go on."""
    name = signal.Signals(signum).name
    return f"{name} ended the training {steps_done(trainer)}; {what_is_saved(trainer, saved)}"


def what_is_saved(trainer: TrainerProtocol, saved: Path | str | None) -> str:
    """Say which checkpoint there is, and how to go on from it."""
    if saved is None:
        return 'nothing is saved: that takes a run_dir (and callbacks=["ModelSaver"], to save at other times, too)'
    if trainer.run_dir is None or Path(saved).resolve().parent != trainer.run_dir.resolve():
        return f'saved {saved}; session_init="{saved}" begins with its weights'
    return f"saved {saved}; to go on from there: {how_to_resume(trainer.run_dir, sys.argv)}"


def how_to_resume(run_dir: Path, argv: Sequence[str]) -> str:
    """Return what a training goes on by: a command, or the options of its script, or those of `train`."""
    if list(argv[1:2]) == ["train"] and is_own_command(argv[0]):
        return f"tpk train {shlex.quote(str(run_dir / RUN_FILE_NAME))} --resume"
    given = {argument.split("=")[0] for argument in argv}
    if given & {"--run-dir", "--resume"}:
        return f"--run-dir {run_dir} --resume auto"
    return f'run_dir="{run_dir}", resume="auto"'


def steps_done(trainer: TrainerProtocol) -> str:
    """Say how far a training is."""
    progress = trainer.loop.progress
    return (
        f"in epoch {progress.epoch_num}, after {progress.local_step + 1} of its {trainer.loop.steps_per_epoch} steps "
        f"({progress.global_step} in all)"
    )
