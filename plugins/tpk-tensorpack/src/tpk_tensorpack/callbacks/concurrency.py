"""Threads and processes that run as long as the training."""

from __future__ import annotations

import threading
from typing import Any

import tpk
from tpk_tensorpack.callbacks.base import Callback

__all__ = ["StartProcOrThread"]


class StartProcOrThread(Callback, tpk.StartProcOrThread):
    """Start threads or processes before training; see `tpk.StartProcOrThread`.

    Threads without a ``stop()`` method are started but never stopped.

    Args:
        startable: a thread or process, or a list of them.
        stop_at_last: ignored: threads and processes are always stopped when training ends.
    """

    def __init__(self, startable: Any, stop_at_last: bool = True) -> None:
        given = startable if isinstance(startable, list | tuple) else [startable]
        self._never_stopped = [
            each for each in given if isinstance(each, threading.Thread) and not hasattr(each, "stop")
        ]
        super().__init__([each for each in given if each not in self._never_stopped])

    def before_train(self, trainer: Any) -> None:
        """Called before the first epoch."""
        super().before_train(trainer)
        for thread in self._never_stopped:
            thread.start()
