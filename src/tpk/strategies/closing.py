"""Closing TensorFlow's sessions in the background: it waits without an end for a process that is dead."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

import tensorflow as tf

_SECONDS_AT_EXIT = 2.0

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def in_background(close: Callable[[], None]) -> threading.Thread:
    """Call what closes a session in a thread, and return that; who needs the end can join it, for a limited time.

    The interpreter ends without the thread, but leaves it some time: a process that ends just while TensorFlow returns
    to the thread would be aborted, since its binding cannot take the interpreter's lock any more.

    Args:
        close: closes the session. That it fails, as it may if another process is gone, is no matter.
    """

    def run() -> None:
        with suppress(tf.errors.OpError):
            close()

    thread = threading.Thread(target=run, name="tpk-close-session", daemon=True)
    _threads.add(thread)
    thread.start()
    return thread


@atexit.register
def _wait_for_all() -> None:
    end = time.monotonic() + _SECONDS_AT_EXIT
    for thread in list(_threads):
        thread.join(max(end - time.monotonic(), 0))
