"""The core loop: it runs the epochs and steps of a trainer, counts them, and ends."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least
from tpk.errors import Preempted, StopTraining
from tpk.graph.step_counter import get_global_step_var
from tpk.plugin.progress import Progress, StopRequest
from tpk.plugin.run_settings import FOREVER
from tpk.train.epoch import as_count, describe_epoch
from tpk.train.resume.preemption import handling_signals
from tpk.train.run.report import log_end, log_failure, notes_of, outcome_logged, signal_message

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


class TrainLoop:
    """Runs the loop of a trainer, counts its steps, and ends it.

    Args:
        trainer: the trainer.

    Attributes:
        progress: the counters, which a checkpoint holds.
        steps_per_epoch: the number of steps in an epoch; 0 until it is set.
        starting_epoch: the number of the first epoch.
        max_epoch: the number of the last epoch.
        steps_per_run: the number of steps in one run of the session; see `tpk.session.many_steps`.
        is_compiled: whether XLA compiles the loop over the steps of a run.
        run_timeout_in_ms: how long a run of the session may take before it is cancelled; 0 for no limit.
        failure: in `after_train`, the error that ended the training; None if it ended normally.
        ended_by: in `after_train`, the `StopTraining` or `tf.errors.OutOfRangeError` that ended the training before its
            last epoch, if any.
        stop: the request to end the training.
    """

    def __init__(self, trainer: tpk.Trainer) -> None:
        self._trainer = trainer
        self.progress = Progress()
        self.steps_per_epoch, self.starting_epoch, self.max_epoch = 0, 1, FOREVER
        self.steps_per_run = 1
        self.is_compiled = False
        self.run_timeout_in_ms = 0
        self.failure: BaseException | None = None
        self.ended_by: Exception | None = None
        self.stop = StopRequest()
        self._runs_step = False
        self._graph_lags = False
        self._has_warned_of_raw_step = False

    @property
    def is_in_run_step(self) -> bool:
        """Whether `run_step` itself is running, as opposed to an ``after_run`` that it calls."""
        return self._runs_step and not self._trainer.hooked_sess.is_in_after_run

    def set_epochs(self, steps_per_epoch: Any, starting_epoch: Any, max_epoch: Any) -> None:
        """Set the length of the training.

        Raises:
            ConfigError: if one of the three is not a whole number, or too small.
        """
        self.steps_per_epoch = as_count(f"{steps_per_epoch=}", steps_per_epoch, 0)
        self.starting_epoch = as_count(f"{starting_epoch=}", starting_epoch, 1)
        self.max_epoch = as_count(f"{max_epoch=}", max_epoch, 0)
        self.progress.epoch_num = self.starting_epoch - 1

    def set_steps_per_run(self, steps_per_run: int) -> None:
        """Make this many steps in one run of the session.

        Raises:
            ConfigError: if it is not a positive integer.
        """
        check_at_least(self._trainer, 1, steps_per_run=steps_per_run)
        self.steps_per_run = steps_per_run

    def limit_runs(self, timeout_in_ms: int) -> None:
        """Cancel each run of the session that takes longer. Call it before the session is created."""
        self.run_timeout_in_ms = timeout_in_ms

    def resume_at(self, progress: Mapping[str, Any], *, epoch_is_over: bool) -> None:
        """Continue after a checkpoint.

        Args:
            progress: the counters in the checkpoint.
            epoch_is_over: whether the checkpoint was taken at the end of an epoch.
        """
        self.progress.load_state_dict(progress)
        self.starting_epoch = self.progress.epoch_num + 1 if epoch_is_over else self.progress.epoch_num

    def start(self, resumed_from: Path | None = None) -> None:
        """Run the loop, end it on signals, and log the length of an epoch and of the run, and the outcome.

        Args:
            resumed_from: the checkpoint from which the training is resumed, if any.
        """
        logger.info("%s", describe_epoch(self._trainer))
        if not self.steps_per_epoch:
            logger.warning("steps_per_epoch=0: an epoch has no steps. Callbacks run, but nothing is trained.")
        if self.max_epoch == FOREVER:
            logger.info("max_epoch is not set: the run goes on until Ctrl-C, a signal or a callback stops it")
        with handling_signals(self.stop):
            with outcome_logged(self._trainer, resumed_from):
                self.run()
            self._trainer.strategy.process_group.barrier("the end of the training")

    def run(self) -> None:
        """Run the loop of a trainer that is set up.

        ```
        hooks.before_train
        for epoch in starting_epoch .. max_epoch:
            hooks.before_epoch
            for local_step in 0 .. steps_per_epoch - 1:  a resumed training continues after the step of its checkpoint
                run_step()                  hooks.before_run / after_run surround hooked_sess.run;
                                            with steps_per_run=k, one run makes k steps
                hooks.trigger_step
            hooks.after_epoch
            hooks.trigger_epoch
        hooks.after_train                   always; callbacks are isolated from each other's failures
        ```

        `tpk.train.resume.checkpoints` lists the order at the end of an epoch, with the checkpoint.
        """
        trainer, progress = self._trainer, self.progress
        hook, trigger_step = trainer.hooks.hook, trainer.hooked_sess.hooks.trigger
        should_stop = trainer.checkpoints.agreed_stop.is_set
        try:
            self._call(hook.before_train, should_stop)
            for epoch in range(self.starting_epoch, self.max_epoch + 1):
                progress.begin_epoch(epoch)
                self._call(hook.before_epoch, should_stop)
                while progress.local_step < self.steps_per_epoch - 1:
                    self._advance()
                    trigger_step(trainer)
                    if should_stop():
                        self._stop()
                # A request of `after_epoch` to stop waits for `trigger_epoch`, which reports and saves the epoch.
                hook.after_epoch(trainer=trainer)
                trainer.monitors.report_step_means()
                self._call(hook.trigger_epoch, should_stop)
        except (StopTraining, tf.errors.OutOfRangeError) as end:
            self.ended_by = end
            log_end(trainer, end)
        except BaseException as failure:
            self.failure = failure
            log_failure(trainer, failure)
            raise
        finally:
            self._finish()

    def sync(self) -> None:
        """Assign the number of completed steps to the global step in the graph, if they may differ.

        A step without a hooked run is not counted in the graph; a step in which the data ended may have been counted.
        """
        if self._graph_lags:
            self._graph_lags = False
            with self._trainer.graph.as_default():
                initializer = get_global_step_var().initializer
            self._trainer.sess.run(initializer, {initializer.inputs[1]: self.progress.global_step})

    def _call(self, hook: Callable[..., Any], should_stop: Callable[[], bool]) -> None:
        """Call a hook of all plugins; then end the training if a plugin or a signal has requested it."""
        hook(trainer=self._trainer)
        if should_stop():
            self._stop()

    def _advance(self) -> None:
        """Run the next step, or the next `steps_per_run` steps of the epoch, and count them.

        While they run, `local_step` is already at the last of them.
        """
        progress = self.progress
        steps = min(self.steps_per_run, self.steps_per_epoch - 1 - progress.local_step)
        goal = progress.global_step + steps
        progress.local_step += steps
        try:
            self._run_steps(goal)
        except (StopTraining, StopIteration, tf.errors.OutOfRangeError) as end:
            progress.local_step -= goal - progress.global_step
            self._graph_lags = True
            if isinstance(end, StopIteration):  # In TensorFlow's `MonitoredSession`, this also ends the training.
                message = f"a step has no more data (StopIteration){notes_of(end)}"
                raise tf.errors.OutOfRangeError(None, None, message) from end
            raise
        # A run in which the data ends makes fewer steps.
        progress.local_step -= max(0, goal - progress.global_step)

    def _run_steps(self, goal: int) -> None:
        """Run steps until `global_step` is `goal`; go on after a failure if a plugin recovers from it.

        A failed step is not counted. Of several steps in one run, those before the failed one are.
        """
        progress = self.progress
        while progress.global_step < goal:
            try:
                self._run_step(goal - progress.global_step)
                return
            except Exception as error:
                progress.withdraw()
                if self.steps_per_run == 1:
                    progress.global_step = goal - 1
                if not self._trainer.hooks.hook.recover(error=error):
                    raise

    def _run_step(self, steps: int) -> None:
        """Call the trainer's `run_step`, whose first run of the session makes and counts `steps` steps."""
        self.progress.offer(steps)
        self._runs_step = True
        try:
            self._trainer.run_step()
        finally:
            self._runs_step = False
        if self.progress.withdraw():
            self._count_raw_step()

    def _count_raw_step(self) -> None:
        """Count a step that ran no hooked session."""
        self.progress.complete(1)
        self._graph_lags = True
        # A graph without variables of a model has no op that reads the global step.
        if len(self._trainer.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)) > 1:
            self.sync()
            self._warn_of_raw_step()

    def _warn_of_raw_step(self) -> None:
        """Warn once that a step without a hooked run called no hooks; name the plugins that have them."""
        called = self._trainer.hooked_sess.hooks.names
        names = {name for hook in ("before_run", "after_run") for name in called.get(hook, ())}
        if names and not self._has_warned_of_raw_step:
            self._has_warned_of_raw_step = True
            logger.warning(
                "step %d did not run trainer.hooked_sess, so before_run and after_run of %s were not called. In "
                "run_step, use self.hooked_sess instead of self.sess.",
                self.progress.global_step,
                ", ".join(sorted(names)),
            )

    def _stop(self) -> None:
        """End the training between two steps or epochs, because a hook or a signal has requested it.

        Raises:
            StopTraining, Preempted, KeyboardInterrupt: one of them, always.
            CheckpointError: if a signal ends the training, and its checkpoint cannot be written.
        """
        checkpoints = self._trainer.checkpoints
        signum = checkpoints.agreed_stop.signum
        if signum is None:
            raise StopTraining(checkpoints.agreed_stop.reason)
        message = signal_message(self._trainer, signum, checkpoints.save_now())
        # A KeyboardInterrupt shows the message itself.
        logger.log(logging.DEBUG if signum == signal.SIGINT else logging.WARNING, "%s", message)
        raise Preempted.by(signum, message)

    def _finish(self) -> None:
        """Call every `after_train`; raise the first failure among them, if the training itself did not fail."""
        failures = self._trainer.hooks.after_train(self._trainer)
        if failures and self.failure is None:
            self.failure = failures[0]
            raise failures[0]
