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
    steps_per_run: int

    def run_step(self) -> None:
        """Run one step."""

    def count_step(self) -> None:
        """Count a step that ran no hooked session."""

    def drop_steps(self, count: int) -> None:
        """Go back to before the last steps under way, in which the training ends."""

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
            run_step()                  hooks.before_run / after_run happen around hooked_sess.run, along with the step;
                                        with steps_per_run=k, one run makes k steps
            hooks.trigger_step
        hooks.after_epoch
        hooks.trigger_epoch
    hooks.after_train                   always; each callback isolated, so that one failure does not rob the others
    ```
    """
    hook, progress, trigger_step = trainer.hooks.hook, trainer.progress, trainer.step_hooks.trigger
    run_steps, should_stop = counted_steps(trainer), trainer.checkpoints.stop_condition()
    at = partial(_at, trainer, should_stop)
    try:
        at(hook.before_train)
        for epoch in range(trainer.starting_epoch, trainer.max_epoch + 1):
            progress.begin_epoch(epoch)
            at(hook.before_epoch)
            while progress.local_step < trainer.steps_per_epoch - 1:
                run_steps()
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


def counted_steps(trainer: LoopTrainer) -> Callable[[], None]:
    """Return what makes the next step of a trainer, or as many of the epoch as one run makes, and counts them.

    A step counts once, however often it runs the session (but see `steps_of_further_runs` of `Trainer`); one that fails
    counts not, and is run once more each time that a plugin recovers from its failure. Before a run, `local_step` is
    that of its last step.
    """
    progress, hooked_sess, run_step = trainer.progress, trainer.hooked_sess, trainer.run_step
    recover, steps_per_run = trainer.hooks.hook.recover, trainer.steps_per_run

    def run_counted() -> None:
        steps = min(steps_per_run, trainer.steps_per_epoch - 1 - progress.local_step)
        progress.local_step += steps
        completed = progress.global_step
        while steps:
            hooked_sess.steps_of_next_run = steps
            try:
                run_step()
                break
            except Exception as error:
                hooked_sess.steps_of_next_run = 0
                # Of several steps in a run, those that were done have been counted.
                done = progress.global_step - completed if steps_per_run > 1 else 0
                progress.global_step = completed = completed + done
                steps -= done
                if recover(error=error):
                    continue
                if isinstance(error, StopTraining | StopIteration | tf.errors.OutOfRangeError):
                    trainer.drop_steps(steps)
                if isinstance(error, StopIteration):  # As under a `MonitoredSession`: what feeds the step has no more.
                    raise tf.errors.OutOfRangeError(None, None, _what_ended(error)) from error
                raise
        if hooked_sess.steps_of_next_run:
            trainer.count_step()
        # Less, if the data has ended within the run; more than one, if further runs of a step count, too.
        progress.local_step -= max(0, steps - (progress.global_step - completed))

    return run_counted


def _what_ended(end: StopIteration) -> str:
    return "; ".join(("a step has no more data (StopIteration)", *getattr(end, "__notes__", ())))
