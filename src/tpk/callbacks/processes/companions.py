"""Processes and threads of the user's that live as long as a training: simulators, evaluators."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError, TrainerStateError
from tpk.input_source.hang_watcher import ends_in_time
from tpk.plugin import Callback, hookimpl
from tpk.plugin.names.spellings import also_spelled

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

_OURS_TO_STOP = "all are stopped when the training ends. Start yourself what is to live longer."


@also_spelled(stop_at_last=_OURS_TO_STOP)
class StartProcOrThread(Callback):
    """Starts processes and threads before the first step, and stops them when the training ends, however it ends.

    A process is told to end (SIGTERM), and killed if it has not done so in `stop_timeout`. A thread must have a method
    ``stop()``, which lets its ``run()`` return; one that does not return in `stop_timeout` is a warning that shows
    where it is. Processes ignore Ctrl-C, which a terminal sends to all processes alike: the training decides when they
    end. (If the training itself is killed, by SIGKILL, nobody stops them; let them look at `os.getppid`.) One that ends
    before is told of in the log, at the end of that epoch.

    When it runs: once before the first step, once after the last one, and a look at each of them at the end of an
    epoch. It works on every strategy; each process of a training starts its own.

    Args:
        startable: processes (`multiprocessing`, started by ``spawn`` or ``forkserver``) and threads, none of which was
            started before; or one of them.
        stop_timeout: how many seconds all of them together have to end.

    Raises:
        ConfigError: if one of them is something else, a thread has no ``stop()``, or a process would be forked: a fork
            of a process that has TensorFlow's threads may hang at any time.
        TrainerStateError: when the training begins, if one of them was started before.

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
        if not stop_timeout > 0:
            raise ConfigError(f"StartProcOrThread(stop_timeout={stop_timeout!r}): expected a positive number.")
        given = startable if isinstance(startable, list | tuple) else [startable]
        for each in given:
            _check(each)
        self._all: Sequence[Any] = tuple(given)
        self._stop_timeout = stop_timeout
        self._started: list[Any] = []

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Start them.

        Raises:
            TrainerStateError: if one was started before.
        """
        for each in self._all:
            if (each.pid if isinstance(each, BaseProcess) else each.ident) is not None:
                raise TrainerStateError(
                    f"StartProcOrThread: {each.name!r} was started before, and nothing starts twice. Make a new one, "
                    "and leave the start to the training."
                )
            with _interrupts_ignored() if isinstance(each, BaseProcess) else nullcontext():
                each.start()
            self._started.append(each)
        logger.info("started: %s", ", ".join(each.name for each in self._all) or "nothing")

    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Tell of those that have ended."""
        for each in [each for each in self._started if not each.is_alive()]:
            self._started.remove(each)
            code = each.exitcode if isinstance(each, BaseProcess) else 0
            level = logging.ERROR if code else logging.INFO
            logger.log(level, "%r has ended before the training%s", each.name, f", with exit code {code}" * bool(code))

    # Last, since what others do at the end may need them.
    @hookimpl(trylast=True)
    def after_train(self, trainer: TrainerProtocol) -> None:
        """Stop them."""
        started, self._started = self._started, []
        for each in started:
            (each.terminate if isinstance(each, BaseProcess) else each.stop)()
        deadline = time.monotonic() + self._stop_timeout
        for each in started:
            left = max(deadline - time.monotonic(), 0.0)
            if isinstance(each, BaseProcess):
                _end(each, left)
            else:
                ends_in_time(each, left, f"the thread {each.name!r} has not ended when its stop() was called")


class ShareSessionThread(threading.Thread):
    """Runs a thread with the session and the graph of a training as the default ones.

    Each thread has defaults of its own, so without this ``tf.compat.v1.get_default_session()`` is None in it. The
    session and graph are those that are the default where it is started; `StartProcOrThread` starts it where that is so
    (as would any callback in ``before_train``). What it runs triggers no hook, and the graph is complete: build what it
    runs before.

    It costs nothing in steps, but what it computes takes its part of the devices. It works on every strategy.

    Args:
        thread: what is run, by its ``run()``; it is stopped by its ``stop()``.

    Raises:
        ConfigError: if `thread` is none, or one that was started itself.
        TrainerStateError: in `start`, if there is no default session.

    Example:
        ```python
        callbacks=[tpk.StartProcOrThread(tpk.ShareSessionThread(Evaluator()))]
        ```
    """

    def __init__(self, thread: threading.Thread) -> None:
        if not isinstance(thread, threading.Thread) or thread.ident is not None:
            raise ConfigError(f"ShareSessionThread({thread!r}): expected a threading.Thread that was not started.")
        super().__init__(name=thread.name, daemon=thread.daemon)
        self._thread = thread
        self._session: Any = None
        if hasattr(thread, "stop"):
            self.stop: Callable[[], Any] = thread.stop

    def start(self) -> None:
        """Start it, with the defaults of the caller.

        Raises:
            TrainerStateError: if there is no default session.
        """
        self._session = tf.compat.v1.get_default_session()
        if self._session is None:
            raise TrainerStateError(
                f"ShareSessionThread: {self.name!r} is started where there is no default session. Leave the start to "
                "tpk.StartProcOrThread, or start it in a before_train."
            )
        super().start()

    def run(self) -> None:
        """Run the thread that was given."""
        with self._session.graph.as_default(), self._session.as_default():
            self._thread.run()


def _check(startable: Any) -> None:
    if isinstance(startable, BaseProcess):
        method = getattr(startable, "_start_method", None) or multiprocessing.get_start_method()
        if method == "fork":
            raise ConfigError(
                f"StartProcOrThread: {startable.name!r} would be a fork of a process with TensorFlow's threads, which "
                "may hang at any time. Make it by multiprocessing.get_context('spawn').Process(...), or derive its "
                "class from that."
            )
        return
    if not isinstance(startable, threading.Thread):
        raise ConfigError(f"StartProcOrThread: {startable!r} is neither a process of multiprocessing nor a thread.")
    if not callable(getattr(startable, "stop", None)):
        raise ConfigError(
            f"StartProcOrThread: the thread {startable.name!r} has no stop(), so nobody could end it with the training."
            " Give its class a method stop() that lets run() return."
        )


def _end(process: BaseProcess, timeout: float) -> None:
    process.join(timeout)
    if process.is_alive():
        logger.warning("%r has not ended when it was told to, and is killed", process.name)
        process.kill()
        process.join()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Within the context, SIGINT is ignored, which a process that is started inherits; if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
