"""The core loop, and what it asks of a trainer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from tpk.errors import StopTraining
from tpk.plugin.trainer import TrainerProtocol
from tpk.train.ending import log_end, log_failure

if TYPE_CHECKING:
    from tpk.plugin.dispatch import StepHooks


class LoopTrainer(TrainerProtocol, Protocol):
    """What the loop asks of a trainer."""

    step_hooks: StepHooks

    def run_step(self) -> None:
        """Run one step."""

    def count_step(self) -> None:
        """Count a step that ran no hooked session."""

    def drop_step(self) -> None:
        """Go back to before the step under way, in which the training ends."""

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
        for local_step in 0 .. steps_per_epoch - 1:  a resumed training goes on after the step of its checkpoint
            run_step()                  hooks.before_run / after_run happen around hooked_sess.run, along with the step
            hooks.trigger_step
        hooks.after_epoch
        hooks.trigger_epoch
    hooks.after_train                   always; each callback isolated, so that one failure does not rob the others
    ```
    """
    hook, progress, trigger_step = trainer.hooks.hook, trainer.progress, trainer.step_hooks.trigger
    run_step, should_stop = counted_step(trainer), trainer.checkpoints.stop_condition()
    at = partial(_at, trainer, should_stop)
    try:
        at(hook.before_train)
        for epoch in range(trainer.starting_epoch, trainer.max_epoch + 1):
            progress.begin_epoch(epoch)
            at(hook.before_epoch)
            first_step = progress.local_step + 1
            for progress.local_step in range(first_step, trainer.steps_per_epoch):
                run_step()
                trigger_step(trainer)
                if should_stop():
                    trainer.stop()
            hook.after_epoch(trainer=trainer)
            at(hook.trigger_epoch)
    except (StopTraining, tf.errors.OutOfRangeError) as end:
        trainer.ended_by = end
        log_end(trainer, end)
    except BaseException as failure:
        trainer.failure = failure
        log_failure(trainer, failure)
        raise
    finally:
        trainer.finish()


def _at(trainer: LoopTrainer, should_stop: Callable[[], bool], moment: Callable[..., Any]) -> None:
    """Call a hook of all plugins; end the training there if one of them, or a signal, has asked for it."""
    moment(trainer=trainer)
    if should_stop():
        trainer.stop()


def counted_step(trainer: LoopTrainer) -> Callable[[], None]:
    """Return what runs a step of a trainer and counts it, however often it runs the session; one that fails counts not.

    A step is run once more each time that a plugin recovers from its failure.
    """
    progress, hooked_sess, run_step = trainer.progress, trainer.hooked_sess, trainer.run_step
    recover = trainer.hooks.hook.recover

    def run_counted() -> None:
        completed = progress.global_step
        while True:
            hooked_sess.counts_next_run = True
            try:
                run_step()
                break
            except Exception as error:
                hooked_sess.counts_next_run = False
                progress.global_step = completed
                if recover(error=error):
                    continue
                if isinstance(error, StopTraining | StopIteration | tf.errors.OutOfRangeError):
                    trainer.drop_step()
                if isinstance(error, StopIteration):  # As under a `MonitoredSession`: what feeds the step has no more.
                    raise tf.errors.OutOfRangeError(None, None, _what_ended(error)) from error
                raise
        if hooked_sess.counts_next_run:
            trainer.count_step()

    return run_counted


def _what_ended(end: StopIteration) -> str:
    return "; ".join(("a step has no more data (StopIteration)", *getattr(end, "__notes__", ())))
