"""Reports of how a training ended: the last lines of its log, the reason, and how to resume."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

import tpk
from tpk.callbacks.statistics.followed import StatisticFollower
from tpk.callbacks.triggers import callbacks_of
from tpk.errors import Preempted, StopTraining, add_note, in_one_line
from tpk.plugin.run_settings import FOREVER
from tpk.text import human_duration
from tpk.train.run.names import how_to_resume

logger = logging.getLogger(__name__)


def log_end(trainer: tpk.Trainer, end: Exception) -> None:
    """Log, in one line, why a training ends before its last epoch."""
    if isinstance(end, StopTraining):
        logger.info("training ended %s: %s", steps_done(trainer), end)
    else:
        # TensorFlow's own message is a page about the graph.
        reason = f": {end}" if "\n" not in f"{end}" else ""
        logger.info("the data ended %s%s", steps_done(trainer), reason)
        logger.debug("the end of the data: %s", end)


def log_failure(trainer: tpk.Trainer, failure: BaseException) -> None:
    """Log the error or interruption that ends a training, unless it was logged when its checkpoint was saved."""
    if isinstance(failure, Preempted):
        return
    if isinstance(failure, KeyboardInterrupt):
        if failure.args:
            return
        saved = what_is_saved(trainer, trainer.checkpoints.newest_prefix())
        logger.warning("interrupted %s; %s", steps_done(trainer), saved)
        return
    logger.error("training failed in %s: %s%s", trainer.loop.progress, in_one_line(failure), notes_of(failure))
    if isinstance(failure, tf.errors.OpError):  # Its message is a page; this ends the traceback with the cause.
        add_note(failure, in_one_line(failure))


def signal_message(trainer: tpk.Trainer, signum: int, saved: Path | None) -> str:
    """Return a line that says which signal ends a training, what was saved, and how to resume."""
    name = signal.Signals(signum).name
    return f"{name} ended the training {steps_done(trainer)}; {what_is_saved(trainer, saved)}"


def what_is_saved(trainer: tpk.Trainer, saved: Path | str | None) -> str:
    """Return the path of a checkpoint and how to resume from it, as text."""
    if saved is None and not trainer.is_chief:
        return "the log of rank 0, which saves for all, says what is saved"
    if saved is None:
        return 'nothing is saved: that takes a run_dir (and callbacks=["ModelSaver"], to save at other times, too)'
    if trainer.run_dir is None or Path(saved).resolve().parent != trainer.run_dir.resolve():
        return f'saved {saved}; session_init="{saved}" starts from its weights'
    return f"saved {saved}; to resume from it: {how_to_resume(trainer.run_dir, sys.argv)}"


def notes_of(error: BaseException) -> str:
    """Return the notes of an error, for the end of a line: each with a semicolon in front."""
    return "".join(f"; {note}" for note in getattr(error, "__notes__", ()) if note != in_one_line(error))


def outcome_of(trainer: tpk.Trainer, failure: BaseException | None) -> tuple[str, str]:
    """Return how a training ended (``"finished"``, ``"interrupted"`` or ``"failed"``), and the reason.

    Args:
        trainer: the trainer.
        failure: the error that left the training, if any.
    """
    if isinstance(failure, Preempted):
        return "interrupted", signal.Signals(failure.signum).name
    if isinstance(failure, KeyboardInterrupt):
        return "interrupted", "SIGINT (Ctrl-C)"
    if failure is not None:
        return "failed", in_one_line(failure)[:1000] + notes_of(failure)
    return "finished", _reason_of_end(trainer)


def _reason_of_end(trainer: tpk.Trainer) -> str:
    end = trainer.loop.ended_by
    if end is None:
        return f"max_epoch={trainer.loop.max_epoch} is reached"
    return str(end) if isinstance(end, StopTraining) else "the data ended"


def steps_done(trainer: tpk.Trainer) -> str:
    """Return how many steps a training has made, as text."""
    progress, steps = trainer.loop.progress, trainer.loop.steps_per_epoch
    of_all = "" if steps == FOREVER else f" of its {steps}"
    return (
        f"in epoch {progress.epoch_num}, after {progress.local_step + 1}{of_all} steps ({progress.global_step} in all)"
    )


@contextmanager
def outcome_logged(
    trainer: tpk.Trainer, resumed_from: Path | None, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Log the outcome of a training whose loop runs within the context, if it ends normally or by a signal.

    The chief logs the number of steps and the time they took; the best values of the statistics that callbacks follow
    and of evaluations, or else of the cost; and the paths of the last and the best checkpoints. `log_end` and
    `log_failure` log why it ended before its last epoch.

    Args:
        trainer: a trainer that is set up.
        resumed_from: the checkpoint from which it was resumed, if any.
        clock: returns the time in seconds.
    """
    started, first_step = clock(), trainer.global_step
    try:
        yield
    except (KeyboardInterrupt, Preempted):
        _log(trainer, clock() - started, first_step, resumed_from)
        raise
    _log(trainer, clock() - started, first_step, resumed_from)


def known_directions(trainer: tpk.Trainer) -> dict[str, str]:
    """Return ``"min"`` or ``"max"``, whichever is better, for each statistic with a known direction.

    Statistics that callbacks follow come first, then validation statistics, then the costs of the training.
    """
    main, costs = trainer.monitors.directions, trainer.monitors.costs
    return main | {cost: "min" for cost in costs if cost not in main}


def _log(trainer: tpk.Trainer, seconds: float, first_step: int, resumed_from: Path | None) -> None:
    if not trainer.is_chief:
        return
    steps = trainer.global_step - first_step
    if resumed_from is not None and not steps and trainer.loop.failure is None:
        logger.info("%s", _finished(trainer, resumed_from))
    else:
        reason = "" if trainer.loop.ended_by or trainer.loop.failure else f"{_reason_of_end(trainer)}: "
        rate = f", {steps / seconds:.3g} steps/s" if steps and seconds > 0 else ""
        logger.info("%strained %d steps in %s%s", reason, steps, human_duration(seconds), rate)
    followers = callbacks_of(trainer.hooks.plugins.values(), StatisticFollower)
    for line in (_best_values(trainer), _checkpoints(trainer, followers, resumed_from)):
        if line:
            logger.info("%s", line)
    for follower in followers:
        name = follower.statistic
        if steps and name not in trainer.monitors.history:
            logger.warning(
                "%s has never seen the statistic %r. %s",
                type(follower).__name__,
                name,
                trainer.monitors.history.nearest(name),
            )


def _finished(trainer: tpk.Trainer, resumed_from: Path) -> str:
    remedy = "resume it without the callback that ends it"
    if trainer.loop.ended_by is None:
        remedy = f"give a max_epoch greater than {trainer.epoch_num}"
    reason = _reason_of_end(trainer)
    return f"nothing to do: the run of {resumed_from} is finished, {reason}. To train longer, {remedy}."


def _best_values(trainer: tpk.Trainer) -> str:
    history = trainer.monitors.history
    for directions in (trainer.monitors.directions, known_directions(trainer)):
        found = {name: history.best(name, mode) for name, mode in directions.items() if name in history}
        values = [f"{name} {best[0]:.5g} in epoch {best[1]} (step {best[2]})" for name, best in found.items() if best]
        if values:
            return f"best: {'; '.join(values)}"
    return ""


def _checkpoints(trainer: tpk.Trainer, followers: list[StatisticFollower], resumed_from: Path | None) -> str:
    # After a signal, the checkpoint has been logged already, along with how to resume.
    last = None if trainer.loop.failure else trainer.checkpoints.last_path or resumed_from
    known = [] if last is None else [f"the last is {last}"]
    known += [f"the best by {each.statistic} is {each.best_checkpoint}" for each in followers if each.best_checkpoint]
    return f"checkpoints: {'; '.join(known)}" if known else ""
