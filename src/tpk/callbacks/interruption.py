"""Makes a thread that is stuck raise an error."""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.client.session import tf_session

from tpk.errors import HangError, add_note

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

_PATIENCE = 1.0
_SIGNALS_PER_GRACE = 20


class Interruption:
    """Makes the thread that trains raise an error, wherever it is.

    Args:
        trainer: the trainer, in the thread that trains.
    """

    def __init__(self, trainer: TrainerProtocol) -> None:
        self._session = trainer.sess
        self._source = trainer.input_source
        self._thread = threading.get_ident()
        self._error: HangError | None = None
        self._is_stuck: Callable[[], bool] = lambda: False
        self._has_closed_session = False
        self._over = threading.Event()
        self._signum, self._former = _install_handler(self._handle)

    def run(self, error: HangError, is_stuck: Callable[[], bool], grace: float) -> bool:
        """Do what there is to make the thread raise `error`; return whether it has, or nothing more can be done.

        Args:
            error: what it is to raise.
            is_stuck: tells whether it is still where it was.
            grace: how many seconds each attempt has to succeed.
        """
        self._is_stuck, self._error = is_stuck, error
        # Closing the session comes last, since callbacks may need it.
        for attempt in (self._interrupt_python, self._interrupt_source, self._close_session):
            if attempt(grace) or self._over.is_set():
                return True
            if not is_stuck():
                self._withdraw()
                return False
        logger.error("nothing within the process can interrupt what the training is stuck in")
        return True

    def take(self) -> HangError | None:
        """Return the error that is to be raised, once."""
        error, self._error = self._error, None
        if error is not None:
            self._over.set()
        return error

    def end(self) -> None:
        """Let `run` return: the training is over."""
        self._over.set()

    def close(self, failure: BaseException | None) -> None:
        """Leave all as it was; to be called in the thread that trains.

        Args:
            failure: by what the training ended.

        Raises:
            HangError: if it had to be raised, and has not been: what was interrupted took it for a good end.
        """
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

    def _interrupt_python(self, grace: float) -> bool:
        if self._is_in_session():
            return False  # There an error that comes from outside would be lost.
        if self._signum is None:
            # The interpreter makes the instance, so it has no message.
            _set_exception(self._thread, ctypes.py_object(HangError))
            return self._over.wait(grace)
        for _ in range(_SIGNALS_PER_GRACE):
            # Sent to the thread, it also ends system calls and locks that it waits for, unlike `interrupt_main`.
            signal.pthread_kill(self._thread, self._signum)
            if self._over.wait(grace / _SIGNALS_PER_GRACE):
                return True
        return False

    def _withdraw(self) -> None:
        self._error = None
        if self._signum is None:
            _set_exception(self._thread, None)

    def _interrupt_source(self, grace: float) -> bool:
        if self._source is None or not self._is_in_session():
            return False
        run_aside(self._source.interrupt)
        return self._over.wait(grace)

    def _close_session(self, grace: float) -> bool:
        if not self._is_in_session():
            return False
        logger.error("closing the session, which cancels what it runs")
        self._has_closed_session = True
        # Not its `close()`: the run then says that it was cancelled, and not merely that the session is closed.
        run_aside(lambda: tf_session.TF_CloseSession(self._session._session))
        return self._over.wait(grace)

    def _is_in_session(self) -> bool:
        return _is_in_tensorflow(sys._current_frames().get(self._thread))

    def _handle(self, signum: int, frame: Any) -> None:
        # The step may have gone on, or its run have been cancelled, since the signal was sent.
        if self._is_stuck() and not _is_in_tensorflow(frame):
            error = self.take()
            if error is not None:
                raise error


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


def run_aside(function: Callable[[], Any]) -> Any:
    """Return what `function` returns; None if it takes long, or fails."""
    found: list[Any] = []

    def run() -> None:
        # A session that hangs or has been closed is to be expected here.
        with suppress(Exception):
            found.append(function())

    thread = threading.Thread(target=run, name="tpk-Watchdog-aside", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return found[0] if found else None
