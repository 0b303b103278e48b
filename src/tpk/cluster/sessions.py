"""Closing TensorFlow's sessions in the background: it waits without an end for a process that is dead."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session

_SECONDS_AT_EXIT = 2.0
_SECONDS_TO_CLOSE = 1.0
_NAME = "tpk-close-session"


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

    thread = threading.Thread(target=run, name=_NAME, daemon=True)
    thread.start()
    return thread


def abort(sess: Any) -> threading.Thread:
    """Let the run under way in `sess`, and each later one, fail by a `tf.errors.CancelledError`; from any thread.

    To `sess.close()` a run would answer that the session is closed, which is not why it fails.

    Returns:
        The thread that closes the session.
    """
    return in_background(lambda: pywrap_tf_session.TF_CloseSession(sess._session))


def close_aborted(sess: Any) -> None:
    """Let a session that was aborted know that it is closed: to close it once more would be an error."""
    sess._closed = True


def close_shared(sess: Any) -> None:
    """Close a session over several processes; it is left behind if one of them is dead."""
    in_background(sess.close).join(_SECONDS_TO_CLOSE)


@atexit.register
def _wait_for_all() -> None:
    end = time.monotonic() + _SECONDS_AT_EXIT
    for thread in threading.enumerate():
        if thread.name == _NAME:
            thread.join(max(end - time.monotonic(), 0))
