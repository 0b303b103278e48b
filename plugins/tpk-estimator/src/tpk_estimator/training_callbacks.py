"""The parts of an Estimator's step that cost less as callbacks: they share one fetch of the loss and the global step.

TensorFlow's session hooks for checkpoints and summaries each read the global step, or again after the run.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import tpk

v1 = tf.compat.v1


class StepResults(tpk.Callback):
    """Fetches the loss and the global step of each step. It must come before the callbacks that read them.

    Args:
        train_op: the op of a step.
        loss: its loss.

    Attributes:
        train_op: an op that makes a step, and then reads the global step.
        loss: the loss of the last step; None before the first.
        step: the global step after it.
    """

    chief_only = False

    def __init__(self, train_op: Any, loss: Any) -> None:
        self._variable = v1.train.get_global_step()
        with tf.control_dependencies([train_op]):
            step = self._variable.read_value()
        self.train_op = step.op
        self._fetches = (loss, step)
        self._uncounted: int | None = None
        self.loss: Any = None
        self.step = 0

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Read the global step from which the training starts."""
        self.step = int(trainer.sess.run(self._variable))

    def before_run(self, run_context: Any) -> Any:
        """Fetch the loss and the global step."""
        return self._fetches

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep them."""
        self.loss, step = run_values.results
        if self._uncounted is None:
            # If the train op does not count its step, the trainer does so after it.
            self._uncounted = min(int(run_context.session.run(self._variable)) - int(step), 1)
        self.step = int(step) + self._uncounted


class SaveCheckpoints(tpk.HookToCallback):
    """Runs a `tf.compat.v1.train.CheckpointSaverHook` without its fetches. Ctrl-C also saves a checkpoint.

    Args:
        hook: the hook.
        results: the results of the steps.
        every_n_steps: after how many steps the hook saves; None if it must be asked in each step.
    """

    def __init__(self, hook: Any, results: StepResults, every_n_steps: int | None) -> None:
        super().__init__(hook)
        self.unused_hooks = {*self.unused_hooks, "before_run"}
        self._results = results
        self._every = every_n_steps
        self._next = 0

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Save the checkpoint of the beginning."""
        super().before_train(trainer)
        self._next = self._results.step + (self._every or 0)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save a checkpoint if it is due."""
        step = self._results.step
        if step >= self._next:
            self.hook.after_run(run_context, v1.train.SessionRunValues(step, None, None))
            self._next = step + (self._every or 0)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Save the last checkpoint, also after Ctrl-C if the step could be finished."""
        failure = trainer.loop.failure
        if isinstance(failure, KeyboardInterrupt) and failure.args:
            self.hook.end(trainer.sess)
        super().after_train(trainer)


class WriteSummaries(tpk.Callback):
    """Writes the summaries of the first step, and then every few steps.

    Args:
        results: the results of the steps.
        every_n_steps: the number of steps between two that are summarized.
        directory: of the event file.
        scaffold: has the op of the summaries, once it is finalized.
    """

    def __init__(self, results: StepResults, every_n_steps: int, directory: str, scaffold: Any) -> None:
        self._results = results
        self._every = every_n_steps
        self._directory = directory
        self._writer: Any = None
        self._scaffold = scaffold
        self._next: int | None = None
        self._is_due = True

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Open the event file."""
        # Here, in the chief only: other processes would write to a file of the same name.
        self._writer = v1.summary.FileWriterCache.get(self._directory)

    def before_run(self, run_context: Any) -> Any:
        """Fetch the summaries if they are due."""
        self._is_due = self._next is None or self._results.step + 1 >= self._next
        return self._scaffold.summary_op if self._is_due else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Write them."""
        if not self._is_due:
            return
        step = self._results.step
        if self._next is None:
            self._writer.add_session_log(v1.SessionLog(status=v1.SessionLog.START), step)
        self._next = step + self._every
        for summary in tf.nest.flatten(run_values.results):
            if summary is not None:
                self._writer.add_summary(summary, step)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Put what is written on disk."""
        if self._writer is not None:
            self._writer.flush()
