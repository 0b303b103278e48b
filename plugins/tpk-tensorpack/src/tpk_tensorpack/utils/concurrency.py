"""Threads and processes that can be stopped."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import platform
import queue
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import tensorflow as tf

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.missing import not_here
from tpk_tensorpack.utils import logger

__all__ = ["LoopThread", "ShareSessionThread", "StoppableThread", "ensure_proc_terminate", "start_proc_mask_signal"]

_ORDERED = ("OrderedContainer", "OrderedResultGatherProc")
__getattr__ = not_here(__name__, dict.fromkeys(_ORDERED, "MultiProcessMapData, which keeps the order"))

_PR_SET_PDEATHSIG = 1
_POLL = 5.0
"""How many seconds a thread waits for a queue before it checks whether to stop."""


class StoppableThread(threading.Thread):
    """A thread that can be asked to stop; the code that it runs has to check `stopped`.

    Args:
        evt: the event that stops it; created by default.
    """

    def __init__(self, evt: threading.Event | None = None) -> None:
        super().__init__()
        self._stop_evt = threading.Event() if evt is None else evt

    def stop(self) -> None:
        """Ask the thread to stop."""
        self._stop_evt.set()

    def stopped(self) -> bool:
        """Whether the thread has been asked to stop."""
        return self._stop_evt.is_set()

    def queue_put_stoppable(self, q: Any, obj: Any) -> None:
        """Put an object into a queue; wait for room until the thread is asked to stop."""
        while not self.stopped():
            with suppress(queue.Full):
                q.put(obj, timeout=_POLL)
                return

    def queue_get_stoppable(self, q: Any) -> Any:
        """Return the next object from a queue; wait for it until the thread is asked to stop, then return None."""
        while not self.stopped():
            with suppress(queue.Empty):
                return q.get(timeout=_POLL)
        return None


class LoopThread(StoppableThread):
    """A daemon thread that calls a function repeatedly.

    Args:
        func: the function.
        pausable: ignored: the thread can always be paused.
    """

    def __init__(self, func: Callable[[], Any], pausable: bool = True) -> None:
        super().__init__()
        self._func = func
        self._may_run = threading.Lock()
        self.daemon = True

    def run(self) -> None:
        """Call the function until the thread is asked to stop."""
        while not self.stopped():
            with self._may_run:
                pass
            self._func()

    def pause(self) -> None:
        """Pause after the current call."""
        self._may_run.acquire()

    def resume(self) -> None:
        """Resume after `pause`."""
        self._may_run.release()


class ShareSessionThread(threading.Thread):
    """A thread that inherits the default session and graph of the thread that starts it.

    Args:
        th: a thread whose `run` is called; by default a subclass overrides `run` and uses `default_sess` in it.
    """

    def __init__(self, th: threading.Thread | None = None) -> None:
        if th is not None and not isinstance(th, threading.Thread):
            raise CheckError(f"ShareSessionThread(th={th!r}): expected a threading.Thread")
        super().__init__()
        self._wrapped = th
        self.daemon = True
        if th is not None:
            self.name = th.name
            self.daemon = th.daemon

    @contextmanager
    def default_sess(self) -> Iterator[Any]:
        """A context in which the session is the default session."""
        if self._sess is None:
            logger.warning("ShareSessionThread %s wasn't under a default session!", self.name)
            yield None
        else:
            with self._sess.as_default():
                yield self._sess

    def start(self) -> None:
        """Start the thread with the current default session."""
        self._sess = tf.compat.v1.get_default_session()
        super().start()

    def run(self) -> None:
        """Call `run` of the wrapped thread."""
        if self._wrapped is None:
            raise NotImplementedError("override run() of a ShareSessionThread, or pass a thread to it")
        with self.default_sess():
            self._wrapped.run()


def ensure_proc_terminate(proc: Any) -> None:
    """Terminate a process, or several, when this process ends."""
    if isinstance(proc, (list, tuple)):
        for each in proc:
            ensure_proc_terminate(each)
        return
    if not isinstance(proc, (multiprocessing.process.BaseProcess, subprocess.Popen)):
        raise CheckError(f"ensure_proc_terminate({proc!r}): expected a process of multiprocessing or subprocess")
    reference = weakref.ref(proc)

    def end() -> None:
        process = reference()
        if isinstance(process, subprocess.Popen):
            process.terminate()
            process.wait()
        elif process is not None and process.is_alive():
            process.terminate()
            process.join()

    atexit.register(end)


def enable_death_signal(_warn: bool = True) -> None:
    """Have this process terminated when its parent dies for any reason; Linux only.

    Args:
        _warn: whether to warn if it is not possible.
    """
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
    elif _warn:
        logger.warning("enable_death_signal works on Linux only: terminate child processes yourself")


def is_main_thread() -> bool:
    """Return whether this is the main thread of the process."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def mask_sigint() -> Iterator[bool]:
    """A context in which SIGINT is ignored, here and in processes started there; yields whether that succeeded."""
    if not is_main_thread():
        yield False
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield True
    finally:
        signal.signal(signal.SIGINT, before)


def start_proc_mask_signal(proc: Any | Sequence[Any]) -> None:
    """Start a process, or several, that ignore SIGINT: Ctrl-C reaches only this process, which terminates them."""
    with mask_sigint():
        for each in proc if isinstance(proc, (list, tuple)) else [proc]:
            each.start()


def subproc_call(cmd: str, timeout: float | None = None) -> tuple[bytes, int]:
    """Run a command in a shell.

    Args:
        cmd: the command.
        timeout: the time limit in seconds.

    Returns:
        The output and the exit status: -1 for a timeout, -2 if the command could not be run.
    """
    try:
        done = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, shell=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        logger.warning("Command '%s' timeout!", cmd)
        return error.output or b"", -1
    except OSError as error:
        logger.warning("Command '%s' failed to run: %s", cmd, error)
        return b"", -2
    if done.returncode != 0:
        logger.warning("Command '%s' failed, return code=%d", cmd, done.returncode)
        logger.warning(done.stdout.decode("utf-8", "replace"))
    return done.stdout, done.returncode
