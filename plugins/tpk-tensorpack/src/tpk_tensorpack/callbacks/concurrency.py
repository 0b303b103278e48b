"""Threads and processes that live as long as the training does."""

from __future__ import annotations

from typing import Any

import tpk
from tpk_tensorpack.callbacks.base import Callback

__all__ = ["StartProcOrThread"]


class StartProcOrThread(Callback, tpk.StartProcOrThread):
    """Starts threads or processes before the training; see `tpk.StartProcOrThread`.

    Args:
        startable: a thread or process, or a list of them.
        stop_at_last: whether they are stopped when the training ends. They are in any case: what goes on for longer is
            no part of the training.
    """

    def __init__(self, startable: Any, stop_at_last: bool = True) -> None:
        super().__init__(startable)
