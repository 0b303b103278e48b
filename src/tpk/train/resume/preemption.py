"""Signals that stop a training in good order: the step is finished, and a checkpoint written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tpk.errors import Preempted

_UNTOUCHED = {signal.SIG_DFL, signal.default_int_handler}


class Preemption:
    """Notes a signal that asks for the end, so that the training ends after its step.

    From then on signals have their former effect again: a second one ends the process, except while the main thread
    is inside TensorFlow, where Python handles no signals.

    Args:
        request_stop: called when a signal arrives; lets the training end when the current step is over.

    Attributes:
        signum: the signal that has arrived; None before.
    """

    def __init__(self, request_stop: Callable[[], None]) -> None:
        self.signum: int | None = None
        self._request_stop = request_stop
        self._replaced: dict[int, Any] = {}
        self._pid = 0

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Within the context, signals are handled in this way, if it is entered in the main thread.

        Signals that the program handles or ignores itself are left alone. At the end all handlers are restored. A
        signal that came too late to end the training earlier takes effect then.

        Raises:
            Preempted, KeyboardInterrupt: if a signal has arrived, and the training ended in good order all the same.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._pid = os.getpid()
        for signum in Preempted.SIGNALS:
            if signal.getsignal(signum) in _UNTOUCHED:
                self._replaced[signum] = signal.signal(signum, self._handle)
        try:
            yield
        finally:
            self._restore()
        if self.signum is not None:
            raise self.exception()

    def request(self, signum: int) -> None:
        """End the training as this signal does, after the step under way."""
        self.signum = signum
        self._request_stop()

    def exception(self, message: str = "the signal came when the training had ended") -> BaseException:
        """Return what a training that was ended by the signal raises: after `SIGINT`, a `KeyboardInterrupt`.

        Args:
            message: what was saved, and how to go on.
        """
        assert self.signum is not None
        return Preempted.by(self.signum, message)

    def _handle(self, signum: int, frame: Any) -> None:
        self._restore()
        if os.getpid() == self._pid:
            self.request(signum)
        else:  # A forked process, such as the worker of a data loader, ends by signals like any other.
            signal.raise_signal(signum)

    def _restore(self) -> None:
        for signum, former in self._replaced.items():
            signal.signal(signum, former)
