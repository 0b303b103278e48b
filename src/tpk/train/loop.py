"""The core loop, and what it asks of a trainer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import tensorflow as tf

from tpk.errors import Preempted, StopTraining
from tpk.plugin.trainer import TrainerProtocol

if TYPE_CHECKING:
    from tpk.plugin.dispatch import StepHooks

logger = logging.getLogger(__name__)


class LoopTrainer(TrainerProtocol, Protocol):
    """What the loop asks of a trainer."""

    step_hooks: StepHooks

    def run_step(self) -> None:
        """Run one step."""

    def stop(self) -> None:
        """Raise what ends the training, since that was asked for."""

    def finish(self) -> None:
        """Let every callback do its `after_train`."""


def run_loop(trainer: LoopTrainer) -> None:
    """Run the loop of a trainer that is set up.

    ```
    hooks.before_train
    for epoch in starting_epoch .. max_epoch:
        hooks.before_epoch
        for local_step in 1 .. steps_per_epoch:      a resumed training goes on after the step of its checkpoint
            run_step()                  hooks.before_run / after_run happen around hooked_sess.run, along with the step
            hooks.trigger_step
        hooks.after_epoch
        hooks.trigger_epoch
    hooks.after_train                   always; each callback isolated, so that one failure does not rob the others
    ```
    """
    hook, progress, trigger_step = trainer.hooks.hook, trainer.progress, trainer.step_hooks.trigger
    run_step, should_stop = recovering_step(trainer), trainer.checkpoints.stop_condition()
    try:
        hook.before_train(trainer=trainer)
        for epoch in range(trainer.starting_epoch, trainer.max_epoch + 1):
            progress.begin_epoch(epoch)
            hook.before_epoch(trainer=trainer)
            first_step = progress.local_step + 1
            for progress.local_step in range(first_step, trainer.steps_per_epoch + 1):
                try:
                    run_step()
                except StopIteration as end:  # As under a `MonitoredSession`: what feeds the step has no more.
                    raise tf.errors.OutOfRangeError(None, None, _what_ended(end)) from end
                trigger_step(trainer)
                if should_stop():
                    trainer.stop()
            hook.after_epoch(trainer=trainer)
            hook.trigger_epoch(trainer=trainer)
            if should_stop():
                trainer.stop()
    except (StopTraining, tf.errors.OutOfRangeError) as end:
        trainer.ended_by = end
        logger.info("training ended in epoch %d, step %d: %s", progress.epoch_num, progress.local_step, end)
    except BaseException as failure:
        trainer.failure = failure
        _log_failure(trainer, failure)
        raise
    finally:
        trainer.finish()


def recovering_step(trainer: LoopTrainer) -> Callable[[], None]:
    """Return what runs a step: the trainer's `run_step`, once more each time that a plugin recovers from its failure.

    Without a plugin that has the hook ``recover``, this costs nothing.
    """
    recover = trainer.hooks.hook.recover
    if not recover.get_hookimpls():
        return trainer.run_step

    def run_step() -> None:
        while True:
            try:
                return trainer.run_step()
            except Exception as error:
                if not recover(error=error):
                    raise

    return run_step


def _what_ended(end: StopIteration) -> str:
    return "; ".join(("a step has no more data (StopIteration)", *getattr(end, "__notes__", ())))


def _log_failure(trainer: LoopTrainer, failure: BaseException) -> None:
    where = f"in epoch {trainer.epoch_num}, step {trainer.local_step}"
    if isinstance(failure, Preempted):
        logger.warning("training was ended by signal %d %s", failure.signum, where)
    else:
        notes = "".join(f"; {note}" for note in getattr(failure, "__notes__", ()))
        logger.error("training failed %s: %r%s", where, failure, notes)
