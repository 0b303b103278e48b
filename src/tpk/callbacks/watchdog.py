"""Notices that a training hangs, says where, and ends it."""

from __future__ import annotations

import faulthandler
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tpk.callbacks.hang_report import attribute_of_source, describe_children, describe_input, stacks_of_threads
from tpk.callbacks.interruption import Interruption
from tpk.errors import ConfigError, HangError
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

ACTIONS = ("raise", "warn")

_LOOKS_PER_TIMEOUT = 4
_STDERR = 2


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
        clock: returns the time in seconds.

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
        clock: Callable[[], float] = time.monotonic,
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
        self._clock = clock
        self._phase = "first step"
        self._before_first_step: tuple[int, int] | None = None
        self._seen: tuple[object, ...] | None = None
        self._since = 0.0
        self._warn_after = 0.0
        self._queue_size: Any = None
        self._interruption: Interruption | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add what tells the fill of the input's queue."""
        queue = attribute_of_source(trainer.input_source, "queue")
        if queue is not None:
            self._queue_size = queue.size(name="watchdog_queue_size")

    @hookimpl(tryfirst=True)
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Begin to watch, in a thread."""
        self._phase, self._seen, self._before_first_step = "first step", None, None
        self._interruption = Interruption(trainer) if self._raises else None
        self.look()
        shortest = min(self._timeouts.values())
        self._thread = threading.Thread(
            target=self._watch, args=(shortest / _LOOKS_PER_TIMEOUT,), name="tpk-Watchdog", daemon=True
        )
        self._thread.start()

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
        self._stopping.set()
        if self._interruption is not None:
            self._interruption.end()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._exit_after is not None:
            faulthandler.cancel_dump_traceback_later()
        if self._interruption is not None:
            self._interruption.close(trainer.failure)

    def translate_error(self, error: BaseException) -> HangError | None:
        """Return the error of the hang, if a run has failed because it was cancelled for that."""
        return None if self._interruption is None else self._interruption.take()

    def look(self) -> bool:
        """Look once whether the training goes on; if not, log where it is. The thread does so now and then.

        Returns:
            Whether there is a hang that is to be ended.
        """
        if self._phase == "first step" and self._first_step_is_over():
            self._phase = "step"
        now, seen = self._clock(), self._progress()
        if seen != self._seen:
            self._seen, self._since, self._warn_after = seen, now, self._timeouts[self._phase]
            self._postpone_exit()
            return False
        if now - self._since < self._warn_after:
            self._postpone_exit()
            return False
        self._warn_after = 2 * (now - self._since)
        logger.error("%s", self._describe(now - self._since))
        return self._raises

    def _progress(self) -> tuple[object, ...]:
        """Return what changes whenever a step has been completed, or the epoch goes on."""
        progress = self.trainer.progress
        return (self._phase, progress.epoch_num, progress.local_step, progress.global_step)

    def _first_step_is_over(self) -> bool:
        if self._before_first_step is None:
            return False
        global_step, local_step = self._before_first_step
        # Where steps do not run the session, only the beginning of the next one tells.
        progress = self.trainer.progress
        return bool(progress.global_step != global_step or progress.local_step > local_step + 1)

    def _watch(self, period: float) -> None:
        """Look now and then (in the thread)."""
        while not self._stopping.wait(period):
            if self.look():
                assert self._interruption is not None
                message = self._headline(self._clock() - self._since)
                if self._interruption.run(HangError(message), self._is_stuck, self._grace):
                    return

    def _is_stuck(self) -> bool:
        return self._progress() == self._seen

    def _postpone_exit(self) -> None:
        if self._exit_after is None:
            return
        until = self._since + self._timeouts[self._phase] + self._exit_after
        if until < math.inf:
            # It is a thread without Python that waits, so it needs nothing that stuck code may hold.
            faulthandler.dump_traceback_later(until - self._clock(), exit=True, file=_STDERR)
        else:
            faulthandler.cancel_dump_traceback_later()

    def _headline(self, seconds: float) -> str:
        progress = self.trainer.progress
        return (
            f"the training has not gone on for {seconds:.3g} s, longer than a {self._phase} may take "
            f"({self._timeouts[self._phase]:g} s), in epoch {progress.epoch_num}, step {progress.local_step} "
            f"(after global step {progress.global_step})"
        )

    def _describe(self, seconds: float) -> str:
        return "\n".join(
            [
                self._headline(seconds),
                *describe_input(self.trainer, self._queue_size),
                *describe_children(),
                stacks_of_threads(),
            ]
        )
