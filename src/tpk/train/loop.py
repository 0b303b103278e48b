"""The core loop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import tensorflow as tf

from tpk.errors import StopTraining

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer

logger = logging.getLogger(__name__)


def run_loop(trainer: Trainer) -> None:
    """Run the loop of a trainer that is set up.

    ```
    hooks.before_train
    for epoch in starting_epoch .. max_epoch:
        hooks.before_epoch
        for local_step in 1 .. steps_per_epoch:
            run_step()                  hooks.before_run / after_run happen around hooked_sess.run, along with the step
            hooks.trigger_step
        hooks.after_epoch
        hooks.trigger_epoch
    hooks.after_train                   always; each callback isolated, so that one failure does not rob the others
    ```
    """
    hook, progress, trigger_step = trainer.hooks.hook, trainer.progress, trainer.step_hooks.trigger
    should_stop = trainer.hooked_sess.should_stop
    try:
        hook.before_train(trainer=trainer)
        for progress.epoch_num in range(trainer.starting_epoch, trainer.max_epoch + 1):
            progress.local_step = 0
            hook.before_epoch(trainer=trainer)
            for progress.local_step in range(1, trainer.steps_per_epoch + 1):
                trainer.run_step()
                trigger_step(trainer)
                if should_stop():
                    raise StopTraining("a hook asked for the end of the training")
            hook.after_epoch(trainer=trainer)
            hook.trigger_epoch(trainer=trainer)
    except (StopTraining, tf.errors.OutOfRangeError) as end:
        logger.info("training ended in epoch %d, step %d: %s", progress.epoch_num, progress.local_step, end)
    except BaseException as failure:
        notes = "".join(f"; {note}" for note in getattr(failure, "__notes__", ()))
        logger.error(
            "training failed in epoch %d, step %d: %r%s", progress.epoch_num, progress.local_step, failure, notes
        )
        trainer.failure = failure
        raise
    finally:
        trainer.finish()
