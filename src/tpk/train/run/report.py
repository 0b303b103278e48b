"""Reports of how a training ends: the last lines of its log, and how to continue from there."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from tpk.callbacks.statistics.epoch_means import EpochMeans
from tpk.callbacks.statistics.followed import StatisticFollower, statistic_followers
from tpk.errors import Preempted, StopTraining, add_note, in_one_line
from tpk.train.run.names import how_to_resume

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


def log_end(trainer: TrainerProtocol, end: Exception) -> None:
    """Log, in one line, why a training ends before its last epoch."""
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


def steps_done(trainer: TrainerProtocol) -> str:
    """Say how far a training is."""
    progress = trainer.loop.progress
    return (
        f"in epoch {progress.epoch_num}, after {progress.local_step + 1} of its {trainer.loop.steps_per_epoch} steps "
        f"({progress.global_step} in all)"
    )


@contextmanager
def outcome_logged(
    trainer: TrainerProtocol, resumed_from: Path | None, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Within the context a training runs its loop; the chief logs how it went, if it ends in good order or by a signal.

    That is: how many steps it took and how long; the best values of the statistics of which it is known
    whether they should fall or grow, because a callback follows them, and of the cost; where the last and the best
    checkpoint are. What ended it before its
    last epoch, and how it failed, is logged by `log_end` and `log_failure`.

    Args:
        trainer: a trainer that is set up.
        resumed_from: the checkpoint from which it goes on, if it does.
        clock: returns the time in seconds.
    """
    started, first_step = clock(), trainer.global_step
    try:
        yield
    except (KeyboardInterrupt, Preempted):
        _log(trainer, clock() - started, first_step, resumed_from)
        raise
    _log(trainer, clock() - started, first_step, resumed_from)


def known_directions(trainer: TrainerProtocol) -> dict[str, bool]:
    """Return of which statistics it is known whether they become better by growing (True), or by falling.

    These are what a callback follows, which come first, since they matter most; and the costs.
    """
    plugins = list(trainer.hooks.plugins.values())
    directions = {cost: False for each in plugins if isinstance(each, EpochMeans) for cost in each.costs}
    directions |= {each.statistic.name: each.statistic.reverse for each in statistic_followers(plugins)}
    return dict(reversed(directions.items()))


def _log(trainer: TrainerProtocol, seconds: float, first_step: int, resumed_from: Path | None) -> None:
    if not trainer.is_chief:
        return
    steps = trainer.global_step - first_step
    if resumed_from is not None and not steps and trainer.loop.failure is None:
        logger.info("%s", _finished(trainer, resumed_from))
    else:
        reason = (
            "" if trainer.loop.ended_by or trainer.loop.failure else f"max_epoch={trainer.loop.max_epoch} is reached: "
        )
        rate = f", {steps / seconds:.3g} steps/s" if steps and seconds > 0 else ""
        logger.info("%strained %d steps in %s%s", reason, steps, _duration(seconds), rate)
    followers = statistic_followers(list(trainer.hooks.plugins.values()))
    for line in (_best_values(trainer), _checkpoints(trainer, followers, resumed_from)):
        if line:
            logger.info("%s", line)
    for follower in followers:
        name = follower.statistic.name
        if steps and name not in trainer.monitors.history:
            logger.warning(
                "%s has never seen the statistic %r. %s",
                type(follower).__name__,
                name,
                trainer.monitors.history.nearest(name),
            )


def _finished(trainer: TrainerProtocol, resumed_from: Path) -> str:
    if trainer.loop.ended_by is None:
        reason = f"max_epoch={trainer.loop.max_epoch} is reached"
        remedy = f"give a max_epoch greater than {trainer.epoch_num}"
    else:
        reason, remedy = str(trainer.loop.ended_by), "resume it without the callback that ends it"
    return f"nothing to do: the run of {resumed_from} is finished, {reason}. To train longer, {remedy}."


def _best_values(trainer: TrainerProtocol) -> str:
    history = trainer.monitors.history
    directions = known_directions(trainer)
    found = {name: history.best(name, reverse) for name, reverse in directions.items() if name in history}
    values = [
        f"{name} {best[0]:.5g} in epoch {best[1]} (step {best[2]})" for name, best in found.items() if best is not None
    ]
    return f"best: {'; '.join(values)}" if values else ""


def _checkpoints(trainer: TrainerProtocol, followers: list[StatisticFollower], resumed_from: Path | None) -> str:
    # After a signal, what was saved has been told, along with the way to go on.
    last = None if trainer.loop.failure else trainer.checkpoints.last_path or resumed_from
    known = [] if last is None else [f"the last is {last}"]
    known += [
        f"the best by {each.statistic.name} is {each.best_checkpoint}" for each in followers if each.best_checkpoint
    ]
    return f"checkpoints: {'; '.join(known)}" if known else ""


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
