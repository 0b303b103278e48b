"""Sessions over several processes, which TensorFlow would close only once all of them answer, even dead ones."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tensorflow as tf

from tpk.tf_internals import close_runtime, is_closed, mark_closed

logger = logging.getLogger(__name__)

_SECONDS_AT_EXIT = 2.0
_SECONDS_TO_CLOSE = 3.0
_NAME = "tpk-close-session"


class SharedSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A session on TensorFlow's server of this process, in which a run may wait for other processes, even dead ones.

    Another thread can abort it, and it is closed in limited time, whoever has died.

    Args:
        target: the server.
        graph: a `tf.Graph`.
        config: a `tf.compat.v1.ConfigProto`.

    Example:
        ```python
        sess = SharedSession(server.target, graph, config)
        threading.Timer(60.0, sess.abort).start()
        sess.run(op)  # raises tf.errors.CancelledError after a minute
        ```
    """

    def __init__(self, target: str, graph: Any, config: Any) -> None:
        super().__init__(target, graph, config)
        self._end: threading.Thread | None = None

    def abort(self) -> None:
        """Make the run under way, and each one after it, fail with `tf.errors.CancelledError`; from any thread.

        To `close()` a run would answer that the session is closed, which is not why it fails.
        """
        if self._end is None and not is_closed(self):
            self._end = in_background(lambda: close_runtime(self))

    def close(self) -> None:
        """Close the session, whether it was aborted or not; it is left behind if another process is dead."""
        self.abort()
        mark_closed(self)
        if self._end is not None:
            self._end.join(_SECONDS_TO_CLOSE)
            if self._end.is_alive():
                logger.info("TensorFlow does not close a session whose server is gone; it is left behind")


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


@atexit.register
def _wait_for_all() -> None:
    end = time.monotonic() + _SECONDS_AT_EXIT
    for thread in threading.enumerate():
        if thread.name == _NAME:
            thread.join(max(end - time.monotonic(), 0))
