"""Callbacks that start processes and threads with a training, or run a command at the end of each epoch."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import string
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing.process import BaseProcess
from typing import Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_positive
from tpk.errors import ConfigError, TrainerStateError
from tpk.hang_watcher import ends_in_time
from tpk.plugin import Callback, hookimpl

logger = logging.getLogger(__name__)


class StartProcOrThread(Callback):
    """Starts processes and threads before the first step, and stops them when the training ends, even by an error.

    A process gets SIGTERM, and is killed if it has not ended within `stop_timeout`. A thread must have a method
    ``stop()`` that lets its ``run()`` return; if it has not returned within `stop_timeout`, a warning shows its stack.
    Processes ignore Ctrl-C, which a terminal sends to all of them: the training decides when they end. (They survive a
    SIGKILL of the training; let them check `os.getppid`.) If a process or thread ends early, the log says so at the end
    of the epoch.

    It works on every strategy; each process of a training starts its own.

    Args:
        startable: a process (of `multiprocessing`, with the start method ``spawn`` or ``forkserver``) or thread that
            has not been started, or a list of these.
        stop_timeout: the number of seconds that all of them together have to end.

    Raises:
        ConfigError: if a value is neither a process nor a thread, a thread has no ``stop()``, or a process would be
            forked, which may hang because of TensorFlow's threads.

    Example:
        ```python
        class Evaluator(threading.Thread):
            def __init__(self):
                super().__init__()
                self.stopped = threading.Event()

            def run(self):
                while not self.stopped.wait(60):
                    evaluate()

            def stop(self):
                self.stopped.set()

        spawn = multiprocessing.get_context("spawn")
        callbacks=[tpk.StartProcOrThread([Evaluator(), spawn.Process(target=simulate)])]
        ```
    """

    chief_only = False

    def __init__(self, startable: Any, stop_timeout: float = 10.0) -> None:
        check_positive(self, stop_timeout=stop_timeout)
        given = startable if isinstance(startable, list | tuple) else [startable]
        for each in given:
            _check(each)
        self._all: Sequence[Any] = tuple(given)
        self._stop_timeout = stop_timeout
        self._started: list[Any] = []

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Start the processes and threads."""
        for each in self._all:
            # The process inherits the handler.
            with handle_interrupts(signal.SIG_IGN) if isinstance(each, BaseProcess) else nullcontext():
                each.start()
            self._started.append(each)
        logger.info("started: %s", ", ".join(each.name for each in self._all) or "nothing")

    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Log which of them have ended early."""
        for each in [each for each in self._started if not each.is_alive()]:
            self._started.remove(each)
            code = each.exitcode if isinstance(each, BaseProcess) else 0
            level = logging.ERROR if code else logging.INFO
            logger.log(level, "%r has ended before the training%s", each.name, f", with exit code {code}" * bool(code))

    # Last, because other callbacks may need them at the end.
    @hookimpl(trylast=True)
    def after_train(self, trainer: tpk.Trainer) -> None:
        """Stop the processes and threads."""
        started, self._started = self._started, []
        for each in started:
            (each.terminate if isinstance(each, BaseProcess) else each.stop)()
        deadline = time.monotonic() + self._stop_timeout
        for each in started:
            left = max(deadline - time.monotonic(), 0.0)
            if isinstance(each, BaseProcess):
                _end(each, left)
            else:
                ends_in_time(each, left, f"the thread {each.name!r} has not ended after its stop()")


class ShareSessionThread(threading.Thread):
    """Runs a thread with the session and the graph of a training as its defaults.

    Each thread has its own defaults, so ``tf.compat.v1.get_default_session()`` is None in an ordinary thread. This one
    has the defaults of the place where it is started, such as `StartProcOrThread` or the ``before_train`` of a
    callback. Its runs of the session trigger no hooks. The graph is complete, so build the ops that it runs before.

    Args:
        thread: the thread whose ``run()`` and ``stop()`` are used.

    Raises:
        ConfigError: if `thread` is not a thread, or has been started.
        TrainerStateError: in `start`, if there is no default session.

    Example:
        ```python
        callbacks=[tpk.StartProcOrThread(tpk.ShareSessionThread(Evaluator()))]
        ```
    """

    def __init__(self, thread: threading.Thread) -> None:
        if not isinstance(thread, threading.Thread) or thread.ident is not None:
            raise ConfigError(f"ShareSessionThread({thread!r}): expected a threading.Thread that has not been started.")
        super().__init__(name=thread.name, daemon=thread.daemon)
        self._thread = thread
        self._session: Any = None
        if hasattr(thread, "stop"):
            self.stop: Callable[[], Any] = thread.stop

    def start(self) -> None:
        """Start the thread with the defaults of the caller."""
        self._session = tf.compat.v1.get_default_session()
        if self._session is None:
            raise TrainerStateError(
                f"ShareSessionThread: {self.name!r} cannot start without a default session. Let tpk.StartProcOrThread "
                "start it, or start it in a before_train."
            )
        super().start()

    def run(self) -> None:
        """Run the given thread."""
        with self._session.graph.as_default(), self._session.as_default():
            self._thread.run()


def _check(startable: Any) -> None:
    if isinstance(startable, BaseProcess):
        method = getattr(startable, "_start_method", None) or multiprocessing.get_start_method()
        if method == "fork":
            raise ConfigError(
                f"StartProcOrThread: {startable.name!r} would be forked, which may hang because of TensorFlow's "
                "threads. Use multiprocessing.get_context('spawn').Process(...), or derive its class from that."
            )
        return
    if not isinstance(startable, threading.Thread):
        raise ConfigError(f"StartProcOrThread: {startable!r} is neither a process of multiprocessing nor a thread.")
    if not callable(getattr(startable, "stop", None)):
        raise ConfigError(
            f"StartProcOrThread: the thread {startable.name!r} has no stop(), so it could not be stopped with the "
            "training. Give its class a method stop() that lets run() return."
        )


def _end(process: BaseProcess, timeout: float) -> None:
    process.join(timeout)
    if process.is_alive():
        logger.warning("%r has not ended after SIGTERM, and is killed", process.name)
        process.kill()
        process.join()


@contextmanager
def handle_interrupts(handler: Any) -> Iterator[None]:
    """Let `handler` handle SIGINT within the context. Outside the main thread, the context has no effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


_SECONDS_TO_RUN = 60
_OWN_NAMES = ("epoch_num", "global_step")


class SendStat(Callback):
    """Runs a shell command with the latest values of statistics at the end of each epoch.

    A command that fails, or takes longer than a minute, is an error in the log, but does not stop the training. Until
    all of its statistics have been reported, the command does not run; a warning says so once.

    It runs at the end of each epoch, or at the times of `PeriodicTrigger`, after all callbacks that may report
    statistics. The training waits for the command; append ``&`` to let it run in the background. It works on every
    strategy, in the chief.

    Args:
        command: the command, with the names of statistics in braces. It is formatted by `str.format`, also with
            ``{epoch_num}`` and ``{global_step}``. Write a literal brace twice.
        names: the names of the statistics; by default those in the command.

    Raises:
        ConfigError: if the command cannot be formatted, or has no statistic.

    Example:
        ```python
        tpk.SendStat("curl -sS -d 'epoch {epoch_num}: error {validation_error:.2%}' https://ntfy.sh/my-runs")
        ```
    """

    def __init__(self, command: str, names: str | Sequence[str] | None = None) -> None:
        try:
            if names is None:
                names = [name for _, name, _, _ in string.Formatter().parse(command) if name]
            self._names = [names] if isinstance(names, str) else [name for name in names if name not in _OWN_NAMES]
            command.format(**dict.fromkeys(self._names, 0.5), **dict.fromkeys(_OWN_NAMES, 1))
        except Exception as error:
            raise ConfigError(
                f"SendStat: cannot format {command!r} with the statistics {names}: {type(error).__name__}: {error}. "
                "Write the name of a statistic in braces, and a literal brace twice."
            ) from error
        if not self._names:
            raise ConfigError(f"SendStat: {command!r} has no statistic. Write its name in braces: {{validation_error}}")
        self._command = command
        self._has_warned = False

    @hookimpl(trylast=True)
    def trigger(self, trainer: tpk.Trainer) -> None:
        """Run the command."""
        known = trainer.monitors.names
        missing = [name for name in self._names if name not in known]
        if missing:
            if not self._has_warned:
                logger.warning(
                    "SendStat waits for %s to be reported; known statistics: %s", ", ".join(missing), ", ".join(known)
                )
            self._has_warned = True
            return
        values = {name: trainer.monitors.get_latest(name) for name in self._names}
        command = self._command.format(epoch_num=self.epoch_num, global_step=self.global_step, **values)
        try:
            code = subprocess.run(
                command, shell=True, stdin=subprocess.DEVNULL, timeout=_SECONDS_TO_RUN, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            logger.error("SendStat: %r took longer than %d s, and was killed", command, _SECONDS_TO_RUN)
            return
        if code:
            logger.error("SendStat: %r failed with exit code %d", command, code)
