"""Watchdog: notices that a training hangs, says where, and ends it."""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import math
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError, HangError, add_note
from tpk.graph.steps import ops_run_for
from tpk.input_source.hang_watcher import Watch, hang_watcher
from tpk.plugin import Callback, hookimpl
from tpk.tf_internals import close_runtime

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

ACTIONS = ("raise", "warn")

_STDERR = 2
_ASIDE_TIMEOUT = 1.0
_SIGNALS_PER_GRACE = 20
_PROCESS_STATES = {"R": "running", "S": "waiting", "D": "waiting for a device", "T": "stopped", "Z": "ended"}


class Watchdog(Callback):
    """Notices that no step has been completed within a time, logs where all threads are, and raises `HangError`.

    The log gets the stacks of all threads, how far the input is and how many datapoints its queue holds, and which
    worker processes are alive. Then the thread that trains gets the error. How that reaches it depends on where it is:

    - In Python code that waits, such as the data code of a `FeedInput` or a callback: it is interrupted by a signal, if
      the training runs in the main thread. In another thread the error comes when that thread next runs Python code.
    - In a run of the session that waits for data, such as a step that takes from an empty queue: the input source is
      asked to let go of it. If that is of no use, the session is closed, which cancels the run; what callbacks want to
      do with the session in `after_train` fails then, and is logged.
    - In code that neither returns nor lets itself be interrupted (an op without end, a `tf.py_function` or an extension
      that is stuck): nothing within the process can reach it. With `exit_after` the process is ended so many seconds
      later: stacks on stderr, status 1. That works even if the stuck code keeps all of Python from running.

    It costs nothing in a step: a thread looks at the counters now and then.

    Args:
        timeout: how many seconds a step may take, with what callbacks do along with and after it.
        first_step_timeout: how many seconds the first step may take, in which graphs are optimized and compiled, and
            data gets going; 10 times `timeout` by default.
        between_epochs_timeout: how many seconds there may be between the last step of an epoch and the beginning of the
            next epoch, such as for evaluations; by default, None, as many as it takes.
        action: ``"raise"``, or ``"warn"`` to go no further than the log, and to log again each time that the time has
            doubled.
        exit_after: how many seconds after that time the process is ended, if the error has not come through by then;
            None to let it hang. It takes the timer of `faulthandler.dump_traceback_later`, of which a process has one.
        grace: for how many seconds each way of interrupting is given before the next one is tried.

    Raises:
        ConfigError: if a time is not positive, or `action` is neither of the two.

    Example:
        ```python
        callbacks=[tpk.Watchdog(timeout=600, between_epochs_timeout=3600)]
        ```
    """

    chief_only = False

    def __init__(
        self,
        timeout: float,
        *,
        first_step_timeout: float | None = None,
        between_epochs_timeout: float | None = None,
        action: str = "raise",
        exit_after: float | None = None,
        grace: float = 5.0,
    ) -> None:
        times = {
            "timeout": timeout,
            "first_step_timeout": 10 * timeout if first_step_timeout is None else first_step_timeout,
            "between_epochs_timeout": math.inf if between_epochs_timeout is None else between_epochs_timeout,
            "exit_after": math.inf if exit_after is None else exit_after,
            "grace": grace,
        }
        for name, seconds in times.items():
            if not seconds > 0:
                raise ConfigError(f"Watchdog({name}={seconds!r}): expected a positive number of seconds.")
        if action not in ACTIONS:
            raise ConfigError(f"Watchdog(action={action!r}): expected 'raise' or 'warn'.")
        if action == "warn" and exit_after is not None:
            raise ConfigError("Watchdog(action='warn', exit_after=...): what only warns does not end the process.")
        self._timeouts = {
            "step": times["timeout"],
            "first step": times["first_step_timeout"],
            "time between epochs": times["between_epochs_timeout"],
        }
        self._raises = action == "raise"
        self._exit_after = exit_after
        self._grace = grace
        self._phase = "first step"
        self._before_first_step: tuple[int, int] | None = None
        self._seen: tuple[object, ...] | None = None
        self._queue_size: Any = None
        self._interruption: Interruption | None = None

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add what tells the fill of the input's queue."""
        queue = _queue_of(trainer.input_source)
        if queue is not None:
            self._queue_size = queue.size(name="watchdog_queue_size")

    @hookimpl(tryfirst=True)
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Begin to watch, in a thread."""
        self._phase, self._seen, self._before_first_step = "first step", None, None
        self._interruption = Interruption(trainer, self._is_stuck, self._grace) if self._raises else None
        hang_watcher.add(self, self._watch())

    @hookimpl(trylast=True)
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Watch the steps of the epoch."""
        if self._phase == "first step":
            self._before_first_step = (trainer.global_step, trainer.local_step)
        else:
            self._phase = "step"

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Watch what is done between two epochs."""
        self._phase = "time between epochs"

    @hookimpl(tryfirst=True)
    def after_train(self, trainer: TrainerProtocol) -> None:
        """Stop to watch.

        Raises:
            HangError: if what was interrupted has not raised it.
        """
        hang_watcher.unwatch(self)
        if self._exit_after is not None:
            faulthandler.cancel_dump_traceback_later()
        if self._interruption is not None:
            self._interruption.end(trainer.loop.failure)

    def translate_error(self, error: BaseException) -> HangError | None:
        """Return the error of the hang, if a run has failed because it was cancelled for that."""
        return None if self._interruption is None else self._interruption.take()

    def _watch(self) -> Watch:
        return Watch(self._look, lambda: self._timeouts[self._phase], min(self._timeouts.values()), self._report)

    def _look(self) -> tuple[object, ...]:
        if self._phase == "first step" and self._first_step_is_over():
            self._phase = "step"
        seen = self._progress()
        if seen != self._seen:
            self._seen = seen
            self._postpone_exit()
        return seen

    def _progress(self) -> tuple[object, ...]:
        """Return what changes whenever a step has been completed, or the epoch goes on."""
        progress = self.trainer.loop.progress
        return (self._phase, progress.epoch_num, progress.local_step, progress.global_step)

    def _is_stuck(self) -> bool:
        return self._progress() == self._seen

    def _report(self, seconds: float) -> None:
        """Log where the training is; interrupt it, unless that is only to be warned of."""
        if self._interruption is not None and self._interruption.has_begun:
            return
        progress = self.trainer.loop.progress
        headline = (
            f"the training has not gone on for {seconds:.3g} s, longer than a {self._phase} may take "
            f"({self._timeouts[self._phase]:g} s), in {progress} "
            f"(after global step {progress.global_step})"
        )
        report = [headline, *_describe_input(self.trainer, self._queue_size), *describe_children(), _stacks()]
        logger.error("%s", "\n".join(report))
        if self._interruption is not None:
            self._interruption.begin(HangError(headline))

    def _first_step_is_over(self) -> bool:
        if self._before_first_step is None:
            return False
        global_step, local_step = self._before_first_step
        # Where steps do not run the session, only the beginning of the next one tells.
        progress = self.trainer.loop.progress
        return bool(progress.global_step != global_step or progress.local_step > local_step + 1)

    def _postpone_exit(self) -> None:
        if self._exit_after is None:
            return
        seconds = self._timeouts[self._phase] + self._exit_after
        if seconds < math.inf:
            # It is a thread without Python that waits, so it needs nothing that stuck code may hold.
            faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
        else:
            faulthandler.cancel_dump_traceback_later()


class Interruption:
    """What makes the thread that trains raise an error, wherever it is.

    Args:
        trainer: the trainer, in the thread that trains.
        is_stuck: tells whether it is still where it was.
        grace: how many seconds each attempt has to succeed.
    """

    def __init__(self, trainer: TrainerProtocol, is_stuck: Callable[[], bool], grace: float) -> None:
        self._session = trainer.sess
        self._source = trainer.input_source
        self._is_stuck = is_stuck
        self._grace = grace
        self._trains = threading.get_ident()
        self._error: HangError | None = None
        self._has_closed_session = False
        self._attempts: threading.Thread | None = None
        self._over = threading.Event()
        self._signum, self._former = _install_handler(self._handle)

    @property
    def has_begun(self) -> bool:
        """Whether the thread is being made to raise an error, or has raised it."""
        return self._attempts is not None

    def begin(self, error: HangError) -> None:
        """Begin to do what there is to make the thread raise `error`."""
        self._error = error
        self._attempts = threading.Thread(target=self._attempt, name="tpk-Watchdog", daemon=True)
        self._attempts.start()

    def take(self) -> HangError | None:
        """Return the error that is to be raised, once."""
        error, self._error = self._error, None
        if error is not None:
            self._over.set()
        return error

    def end(self, failure: BaseException | None) -> None:
        """Leave all as it was: the training is over. To be called in the thread that trains.

        Args:
            failure: by what the training ended.

        Raises:
            HangError: if it had to be raised, and has not been: what was interrupted took it for a good end.
        """
        self._over.set()
        attempts = self._attempts
        if attempts is not None:
            attempts.join()
        if self._signum is not None:
            signal.signal(self._signum, self._former)
        if self._has_closed_session:
            with suppress(tf.errors.OpError):  # It has been closed already, but does not know that.
                self._session.close()
        error = self.take()
        if error is None or (failure is None and not self._is_stuck()):
            return  # It has gone on in the last moment.
        if failure is None:
            raise error
        if isinstance(failure, HangError):
            failure.args = error.args  # It came without a message, see `_interrupt_python`.
        else:
            add_note(failure, f"it was interrupted: {error}")

    def _attempt(self) -> None:
        # Closing the session comes last, since callbacks may need it.
        for interrupt in (self._interrupt_python, self._interrupt_source, self._close_session):
            interrupt()
            if self._over.is_set():
                return
            if not self._is_stuck():
                self._error = self._attempts = None
                if self._signum is None:
                    _set_exception(self._trains, None)
                return
        logger.error("nothing within the process can interrupt what the training is stuck in")

    def _interrupt_python(self) -> None:
        if self._is_in_session():
            return  # There an error that comes from outside would be lost.
        if self._signum is None:
            # The interpreter makes the instance, so it has no message.
            _set_exception(self._trains, ctypes.py_object(HangError))
            self._over.wait(self._grace)
            return
        for _ in range(_SIGNALS_PER_GRACE):
            # Sent to the thread, it also ends system calls and locks that it waits for, unlike `interrupt_main`.
            signal.pthread_kill(self._trains, self._signum)
            if self._over.wait(self._grace / _SIGNALS_PER_GRACE):
                return

    def _interrupt_source(self) -> None:
        if self._source is not None and self._is_in_session():
            _run_aside(self._source.interrupt)
            self._over.wait(self._grace)

    def _close_session(self) -> None:
        if self._is_in_session():
            logger.error("closing the session, which cancels what it runs")
            self._has_closed_session = True
            # Not its `close()`: the run then says that it was cancelled, and not merely that the session is closed.
            _run_aside(lambda: close_runtime(self._session))
            self._over.wait(self._grace)

    def _is_in_session(self) -> bool:
        return _is_in_tensorflow(sys._current_frames().get(self._trains))

    def _handle(self, signum: int, frame: Any) -> None:
        # The step may have gone on, or its run have been cancelled, since the signal was sent.
        if self._is_stuck() and not _is_in_tensorflow(frame):
            error = self.take()
            if error is not None:
                raise error


def describe_children() -> list[str]:
    """Return a line for each child process, where the system tells of them."""
    lines = []
    for path in Path("/proc/self/task").glob("*/children"):
        pids: list[str] = []
        with suppress(OSError):  # The thread, like each of the processes, may have just ended.
            pids = path.read_text().split()
        for pid in pids:
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                lines.append(f"child process {pid}: {_PROCESS_STATES.get(state, state)}, {command.strip()[:200]}")
    return lines


def _describe_input(trainer: TrainerProtocol, queue_size: Any) -> list[str]:
    source = trainer.input_source
    if source is None:
        return []
    lines = [f"input: {type(source).__name__}"]
    taken = _run_aside(lambda: source.consumed)
    if taken is not None:
        lines.append(f"datapoints that steps have asked for: {taken}")
    if queue_size is not None:
        size = _run_aside(lambda: trainer.sess.run(queue_size))
        lines.append(f"datapoints in its queue: {'the session does not answer' if size is None else size}")
    return lines


def _stacks() -> str:
    """Return where all threads are but this one, those of TensorFlow that run Python code included."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = [
        f"thread {names.get(ident, '?')} ({ident}):\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    ]
    return "\n".join(stacks).rstrip()


def _queue_of(source: Any) -> Any:
    """Return the queue of an input source, or of the one on which it stands; None if it has none."""
    while source is not None and getattr(source, "queue", None) is None:
        source = getattr(source, "source", None)
    return None if source is None else source.queue


def _install_handler(handler: Callable[[int, Any], None]) -> tuple[int | None, Any]:
    """Let a signal that nobody uses call `handler`; return it, and what it did before. (None, None) if impossible."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_kill"):
        return None, None
    last = getattr(signal, "SIGRTMAX", None)
    candidates = [] if last is None else list(range(last - 1, signal.SIGRTMIN, -1))
    for signum in [*candidates, signal.SIGUSR2]:
        if signal.getsignal(signum) == signal.SIG_DFL:
            return signum, signal.signal(signum, handler)
    return None, None


def _set_exception(thread: int, exception: Any) -> None:
    """Have a thread raise `exception` when it next runs Python code; or not, if that is None."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


def _is_in_tensorflow(frame: Any) -> bool:
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith("tensorflow.")


def _run_aside(function: Callable[[], Any]) -> Any:
    """Return what `function` returns; None if it takes long, or fails."""
    found: list[Any] = []

    def run() -> None:
        # A session that hangs or has been closed is to be expected here.
        with suppress(Exception):
            found.append(function())

    thread = threading.Thread(target=run, name="tpk-Watchdog-aside", daemon=True)
    thread.start()
    thread.join(_ASIDE_TIMEOUT)
    return found[0] if found else None


_WAITS = re.compile(r"Queue(De|En)queue|Unstage|Stage$|(Eager)?PyFunc|Collective|Horovod|Nccl|Barrier|IteratorGetNext")
_WAITS_TOO = re.compile(r"TakeGradient|MultiDeviceIterator")
_MOST_NAMED = 8


class SessionRunTimeout(Callback):
    """Gives each run of a step a timeout; a run that takes longer is cancelled, and an error says what it waits for.

    It is the one of `tf.compat.v1.RunOptions`. What TensorFlow can cancel ends at once: waiting for a queue, for a
    `tf.data` iterator, for another device. Python code within the run (`tf.py_function`) and a kernel that computes
    are waited for; `Watchdog` interrupts these, too, and watches what is between the runs.

    When it runs: never in a step: the timeout is compiled into the runs, and costs nothing; but where TensorFlow's
    servers run the steps (`collective`, `distributed_replicated`, `distributed_parameter_server`), whose compiled runs
    know none, steps are made by the ordinary `Session.run`, which is slower. It holds for the runs of
    `trainer.hooked_sess`, the first of which may take long (XLA, the first datapoints), not for those that callbacks
    make by themselves, such as evaluations. With ``steps_per_run=k`` a run is k steps. It works on every strategy; each
    process watches its own runs.

    Args:
        timeout_in_ms: how many milliseconds a run may take.

    Raises:
        ConfigError: if `timeout_in_ms` is no positive whole number.
        HangError: in the training, if a run takes longer.

    Example:
        ```python
        callbacks=[tpk.SessionRunTimeout(60_000)]
        ```
    """

    chief_only = False

    def __init__(self, timeout_in_ms: int) -> None:
        if not isinstance(timeout_in_ms, int) or isinstance(timeout_in_ms, bool) or timeout_in_ms <= 0:
            raise ConfigError(
                f"SessionRunTimeout({timeout_in_ms!r}): expected a positive whole number of milliseconds."
            )
        self._timeout_in_ms = timeout_in_ms

    @hookimpl(tryfirst=True)
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Set the timeout."""
        trainer.hooked_sess.cancel_after(self._timeout_in_ms)

    def translate_error(self, error: BaseException) -> HangError | None:
        """Return what says which step has waited, and for what; None for other errors."""
        if not isinstance(error, tf.errors.DeadlineExceededError):
            return None
        trainer = self.trainer
        return HangError(
            f"a run of the session took longer than {self._timeout_in_ms} ms, and was cancelled, in "
            f"{trainer.loop.progress} (after global step {trainer.global_step}); {_what_may_wait(trainer.train_ops)}. "
            "Give SessionRunTimeout more, if that is how long it takes."
        )


def _what_may_wait(train_ops: list[Any]) -> str:
    """Say which ops of a step wait for something else than what the step computes."""
    fetched = [getattr(each, "op", each) for each in tf.nest.flatten(train_ops)]
    waiting = [op for op in ops_run_for(fetched) if _WAITS.match(op.type) or _WAITS_TOO.search(op.type)]
    if not waiting:
        return "nothing in a step waits for data or for other processes, so it was computing"
    names = [f"{op.name} ({op.type})" for op in waiting[:_MOST_NAMED]]
    more = f" and {len(waiting) - _MOST_NAMED} more" if len(waiting) > _MOST_NAMED else ""
    return f"what waits in a step is {', '.join(names)}{more}"
