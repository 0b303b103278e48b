"""Threads and processes that live as long as the training does."""

from __future__ import annotations

import threading
from typing import Any

import tpk
from tpk_tensorpack.callbacks.base import Callback

__all__ = ["StartProcOrThread"]


class StartProcOrThread(Callback, tpk.StartProcOrThread):
    """Starts threads or processes before the training; see `tpk.StartProcOrThread`.

    Threads without a method ``stop()`` are started and left alone.

    Args:
        startable: a thread or process, or a list of them.
        stop_at_last: whether they are stopped when the training ends. They are in any case: what goes on for longer is
            no part of the training.
    """

    def __init__(self, startable: Any, stop_at_last: bool = True) -> None:
        given = startable if isinstance(startable, list | tuple) else [startable]
        self._never_stopped = [each for each in given if _cannot_be_stopped(each)]
        super().__init__([each for each in given if not _cannot_be_stopped(each)])

    def before_train(self, trainer: Any) -> None:
        """Called before the first epoch."""
        super().before_train(trainer)
        for thread in self._never_stopped:
            thread.start()


def _cannot_be_stopped(startable: Any) -> bool:
    return isinstance(startable, threading.Thread) and not hasattr(startable, "stop")
