"""Signals that stop a training in good order: the step is finished, and a checkpoint written."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tpk.errors import Preempted

logger = logging.getLogger(__name__)

_SECONDS_BEFORE_WORD = 1.0
_UNTOUCHED = {signal.SIG_DFL, signal.default_int_handler}


class Preemption:
    """Takes note of a signal that asks for the end, so that the training ends after its step.

    A second signal has its default effect, which is the end of the process at once. A thread of its own sees to that,
    because the main thread, the only one in which Python handles signals, may be within a long step.

    Args:
        request_stop: called when a signal arrives; lets the training end when the step under way is over.

    Attributes:
        signum: the signal that has arrived; None before.
    """

    def __init__(self, request_stop: Callable[[], None]) -> None:
        self.signum: int | None = None
        self._request_stop = request_stop
        self._replaced: dict[int, Any] = {}

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Within the context, signals are handled in this way, if it is entered in the main thread.

        Signals that the program handles or ignores itself are left alone. At the end all is as it was. A signal that
        came too late to end the training earlier takes effect then.

        Raises:
            Preempted, KeyboardInterrupt: if a signal has arrived, and the training ended in good order all the same.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        _register_with_forks()
        taken = [signum for signum in Preempted.SIGNALS if signal.getsignal(signum) in _UNTOUCHED]
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        former_descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        _active.append(self)
        watcher = threading.Thread(target=self._watch, args=(receiver, taken), name="tpk-signals", daemon=True)
        watcher.start()
        for signum in taken:
            self._replaced[signum] = signal.signal(signum, self._handle)
        try:
            yield
        finally:
            for signum, handler in self._replaced.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(former_descriptor)
            _active.remove(self)
            sender.close()
            watcher.join()
            receiver.close()
        if self.signum is not None:
            raise self.exception()

    def exception(self, message: str = "the signal came when the training had ended") -> BaseException:
        """Return what a training that was ended by the signal raises: after `SIGINT`, a `KeyboardInterrupt`.

        Args:
            message: what was saved, and how to go on.
        """
        assert self.signum is not None
        return Preempted.by(self.signum, message)

    def _handle(self, signum: int, frame: Any) -> None:
        for each, former in self._replaced.items():
            # Whoever sits at a prompt or a notebook wants the step broken off by a second Ctrl-C, not to lose it all.
            interactive = each == signal.SIGINT and hasattr(sys, "ps1")
            signal.signal(each, former if interactive else signal.SIG_DFL)
        self.signum = signum
        self._request_stop()

    def _watch(self, receiver: socket.socket, taken: list[int]) -> None:
        """Wait for the first signal (in the thread), and let the second one have its default effect."""
        while received := receiver.recv(1):
            if received[0] in taken:
                for signum in taken:
                    if not (signum == signal.SIGINT and hasattr(sys, "ps1")):
                        _set_default_action(signum)
                self._say_that_it_lasts(receiver, signal.Signals(received[0]).name)
                return

    def _say_that_it_lasts(self, receiver: socket.socket, name: str) -> None:
        """Log what the training waits for, if that takes a while; not in the handler, which may interrupt the log."""
        receiver.settimeout(_SECONDS_BEFORE_WORD)
        try:
            receiver.recv(1)
        except TimeoutError:
            logger.warning(
                "%s: the training ends after this step, with a checkpoint if there is a place for it. "
                "A second signal ends it at once.",
                name,
            )


_active: list[Preemption] = []


def _set_default_action(signum: int) -> None:
    """Do what `signal.signal(signum, signal.SIG_DFL)` does, which only the main thread may call."""
    if hasattr(ctypes, "pythonapi"):
        set_action = ctypes.pythonapi.PyOS_setsig
        set_action.argtypes, set_action.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        set_action(signum, None)


def _forget_in_child() -> None:
    """Let a forked process, such as the worker of a data loader, be ended by signals as any other."""
    for preemption in _active:
        for signum, handler in preemption._replaced.items():
            with suppress(ValueError):
                signal.signal(signum, handler)
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)


@functools.cache
def _register_with_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_in_child)
