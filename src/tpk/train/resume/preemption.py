"""Signals that end a training cleanly: the current step is finished, and a checkpoint is written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tpk.errors import Preempted
from tpk.plugin.progress import StopRequest

_UNTOUCHED = {signal.SIG_DFL, signal.default_int_handler}


@contextmanager
def handling_signals(stop: StopRequest | None = None) -> Iterator[None]:
    """Within the context, a signal requests the end of the training, if the context is entered in the main thread.

    At the end of the context, the signal takes effect. Signals that the program itself handles or ignores are
    unaffected. The former handlers are restored after the first signal and at the end. So a second signal ends the
    process, except while the main thread is inside TensorFlow, where Python handles no signals.

    Args:
        stop: gets the request; None to only postpone the signal to the end of the context.

    Raises:
        Preempted, KeyboardInterrupt: at the end of the context, if a signal has arrived.
    """
    stop = stop or StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pid = os.getpid()
    replaced: dict[int, Any] = {}

    def restore() -> None:
        for signum, former in replaced.items():
            signal.signal(signum, former)

    def handle(signum: int, frame: Any) -> None:
        restore()
        if os.getpid() == pid:
            stop.set_by_signal(signum)
        else:  # A forked process, such as the worker of a data loader, ends by signals as usual.
            signal.raise_signal(signum)

    for signum in Preempted.SIGNALS:
        if signal.getsignal(signum) in _UNTOUCHED:
            replaced[signum] = signal.signal(signum, handle)
    try:
        yield
    finally:
        restore()
    if stop.signum is not None:
        raise Preempted.by(stop.signum, "the signal arrived when the training had already ended")
