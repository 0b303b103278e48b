"""Guards against hangs: a watchdog for the whole training, and a timeout for each run of a step."""

from __future__ import annotations

import faulthandler
import logging
import math
import re
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least, check_positive, given
from tpk.errors import HangError, add_note
from tpk.graph.fetches import ops_run_for
from tpk.hang_watcher import Watch, hang_watcher
from tpk.plugin import Callback, hookimpl
from tpk.text import some
from tpk.tf_internals import close_runtime

logger = logging.getLogger(__name__)

_STDERR = 2
_SECONDS_TO_ANSWER = 1.0
_SECONDS_TO_END = 5.0


class Watchdog(Callback):
    """Ends a training with a `HangError` if no step has completed within a time.

    It first logs the stacks of all threads, how many datapoints the steps have asked for, and how many are in the queue
    of the input. Then it makes the step fail: it interrupts the input source, and if that does not help within a few
    seconds, it closes the session, which cancels its runs.

    Python code that hangs, such as a callback or the data code of a `FeedInput`, cannot be interrupted: the error is
    raised when this code returns. The same is true for an op that never ends. With `exit_after`, the process ends
    nevertheless: with stacks on stderr and status 1, even if the code that hangs keeps other Python threads from
    running. Resume it with ``resume="auto"``.

    It costs nothing in a step: a thread looks at the counters from time to time.

    Args:
        timeout: the maximum number of seconds for a step, with the callbacks that run along with and after it. The
            first step, in which TensorFlow optimizes graphs and the data starts, may take 10 times as long.
        between_epochs_timeout: the maximum number of seconds between the last step of an epoch and the start of the
            next epoch, for evaluations for example; None for no limit.
        exit_after: the number of seconds after the timeout at which the process ends, unless the training has ended by
            then; None to let it hang. It uses the timer of `faulthandler.dump_traceback_later`; a process has only one.

    Raises:
        ConfigError: if a number is not positive.

    Example:
        ```python
        callbacks=[tpk.Watchdog(timeout=600, between_epochs_timeout=3600)]
        ```
    """

    chief_only = False

    def __init__(
        self, timeout: float, *, between_epochs_timeout: float | None = None, exit_after: float | None = None
    ) -> None:
        optional = given(between_epochs_timeout=between_epochs_timeout, exit_after=exit_after)
        check_positive(self, timeout=timeout, **optional)
        self._timeouts = {
            "first step": 10 * timeout,
            "step": timeout,
            "time between epochs": math.inf if between_epochs_timeout is None else between_epochs_timeout,
        }
        self._exit_after = exit_after
        self._phase = "first step"
        self._before_first_step: tuple[int, int] | None = None
        self._seen: tuple[object, ...] | None = None
        self._queue_size: Any = None
        self._error: HangError | None = None
        self._is_over = threading.Event()
        self._has_closed_session = False

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Add the op that returns the size of the input's queue."""
        source = trainer.input_source
        if source is not None and source.innermost.queue is not None:
            self._queue_size = source.innermost.queue.size(name="watchdog_queue_size")

    @hookimpl(tryfirst=True)
    def before_train(self, trainer: tpk.Trainer) -> None:
        """Start to watch, in a thread."""
        self._phase, self._seen, self._before_first_step = "first step", None, None
        self._error, self._has_closed_session = None, False
        self._is_over.clear()
        hang_watcher.add(self, self._watch())

    @hookimpl(trylast=True)
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Watch the steps of the epoch."""
        if self._phase == "first step":
            self._before_first_step = (trainer.global_step, trainer.local_step)
        else:
            self._phase = "step"

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Watch the time between two epochs."""
        self._phase = "time between epochs"

    @hookimpl(tryfirst=True)
    def after_train(self, trainer: tpk.Trainer) -> None:
        """Stop watching, and raise the `HangError` if no run has raised it."""
        self._is_over.set()
        hang_watcher.unwatch(self)
        if self._exit_after is not None:
            faulthandler.cancel_dump_traceback_later()
        if self._has_closed_session:
            with suppress(tf.errors.OpError):  # It is closed in the runtime already.
                trainer.sess.close()
        error, self._error = self._error, None
        if error is None:
            return
        if trainer.loop.failure is None:
            raise error
        add_note(trainer.loop.failure, f"it was interrupted: {error}")

    def translate_error(self, error: BaseException) -> HangError | None:
        """Return the error of the hang for the first run that fails after it."""
        hang, self._error = self._error, None
        if hang is not None:
            self._is_over.set()
        return hang

    def _watch(self) -> Watch:
        return Watch(self._look, lambda: self._timeouts[self._phase], min(self._timeouts.values()), self._report)

    def _look(self) -> tuple[object, ...]:
        """Return a value that changes whenever a step completes or a phase begins."""
        progress = self.trainer.loop.progress
        if self._phase == "first step" and self._before_first_step is not None:
            global_step, local_step = self._before_first_step
            # A step that does not run the session is complete when the next one begins.
            if progress.global_step != global_step or progress.local_step > local_step + 1:
                self._phase = "step"
        seen = (self._phase, progress.epoch_num, progress.local_step, progress.global_step)
        if seen != self._seen:
            self._seen = seen
            self._postpone_exit()
        return seen

    def _postpone_exit(self) -> None:
        if self._exit_after is None:
            return
        seconds = self._timeouts[self._phase] + self._exit_after
        if seconds < math.inf:
            # Its thread is not a Python thread, so it needs no lock that the hanging code may hold.
            faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
        else:
            faulthandler.cancel_dump_traceback_later()

    def _report(self, seconds: float) -> None:
        """Log where the training hangs, and make its run fail."""
        progress = self.trainer.loop.progress
        headline = (
            f"no progress for {seconds:.3g} s, longer than a {self._phase} may take "
            f"({self._timeouts[self._phase]:g} s), in {progress} (after global step {progress.global_step})"
        )
        report = [headline, *_describe_input(self.trainer, self._queue_size), _stacks()]
        logger.error("%s", "\n".join(report))
        if self._error is not None or self._is_over.is_set():
            return
        self._error = HangError(headline)
        if self.trainer.input_source is not None:
            _run_aside(self.trainer.input_source.interrupt)
            self._is_over.wait(_SECONDS_TO_END)
        if not self._is_over.is_set():
            logger.error("closing the session, which cancels its runs")
            self._has_closed_session = True
            # After `Session.close`, a later run would only say that the session is closed.
            _run_aside(lambda: close_runtime(self.trainer.sess))


def _describe_input(trainer: tpk.Trainer, queue_size: Any) -> list[str]:
    source = trainer.input_source
    if source is None:
        return []
    lines = [f"input: {type(source).__name__}"]
    consumed = _run_aside(lambda: source.consumed)
    if consumed is not None:
        lines.append(f"datapoints that steps have asked for: {consumed}")
    if queue_size is not None:
        size = _run_aside(lambda: trainer.sess.run(queue_size))
        lines.append(f"datapoints in its queue: {'the session does not answer' if size is None else size}")
    return lines


def _stacks() -> str:
    """Return the stacks of all other threads, including TensorFlow's threads that run Python code."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = [
        f"thread {names.get(ident, '?')} ({ident}):\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    ]
    return "\n".join(stacks).rstrip()


def _run_aside(function: Callable[[], Any]) -> Any:
    """Return the result of `function`, or None if it fails or takes long, as it may after a hang."""
    found: list[Any] = []

    def run() -> None:
        with suppress(Exception):
            found.append(function())

    thread = threading.Thread(target=run, name="tpk-Watchdog", daemon=True)
    thread.start()
    thread.join(_SECONDS_TO_ANSWER)
    return found[0] if found else None


_WAITING_OPS = re.compile(
    r"^(Queue(De|En)queue|Unstage|Stage$|(Eager)?PyFunc|Collective|Horovod|Nccl|Barrier|IteratorGetNext)"
    r"|TakeGradient|MultiDeviceIterator"
)


class SessionRunTimeout(Callback):
    """Cancels a run of a step that takes too long, with an error that names the ops that may be waiting.

    It is the timeout of `tf.compat.v1.RunOptions`. TensorFlow cancels waiting ops at once: for a queue, for a `tf.data`
    iterator, for another device. It does not cancel Python code within the run (`tf.py_function`) or a kernel that
    computes. `Watchdog` also watches the time between runs.

    The timeout is compiled into the runs, and costs nothing, except where TensorFlow's servers run the steps
    (``collective``, ``distributed_replicated``, ``distributed_parameter_server``): their compiled runs have no timeout,
    so the steps use the slower `Session.run`. It applies to the runs of `trainer.hooked_sess`, of which the first may
    take long (XLA, the first datapoints), but not to other runs of callbacks, such as evaluations. With
    ``steps_per_run=k`` a run is k steps. It works on every strategy; each process watches its own runs.

    Args:
        timeout_in_ms: the maximum duration of a run in milliseconds.

    Raises:
        ConfigError: if `timeout_in_ms` is not a positive integer.
        HangError: in the training, if a run takes longer.

    Example:
        ```python
        callbacks=[tpk.SessionRunTimeout(60_000)]
        ```
    """

    chief_only = False

    def __init__(self, timeout_in_ms: int) -> None:
        check_at_least(self, 1, timeout_in_ms=timeout_in_ms)
        self._timeout_in_ms = timeout_in_ms

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Set the timeout."""
        trainer.loop.limit_runs(self._timeout_in_ms)

    def translate_error(self, error: BaseException) -> HangError | None:
        """Return an error with the step and the ops that may be waiting."""
        if not isinstance(error, tf.errors.DeadlineExceededError):
            return None
        trainer = self.trainer
        return HangError(
            f"a run of the session took longer than {self._timeout_in_ms} ms, and was cancelled, in "
            f"{trainer.loop.progress} (after global step {trainer.global_step}). {_what_may_wait(trainer.train_ops)}. "
            "If a run may take that long, give SessionRunTimeout more time."
        )


def _what_may_wait(train_ops: list[Any]) -> str:
    fetched = [getattr(each, "op", each) for each in tf.nest.flatten(train_ops)]
    waiting = [f"{op.name} ({op.type})" for op in ops_run_for(fetched) if _WAITING_OPS.search(op.type)]
    if not waiting:
        return "No op of a step waits for data or for other processes, so it was computing"
    return f"The ops of a step that may wait: {some(waiting, 8)}"
