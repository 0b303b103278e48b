"""Sessions on TensorFlow's servers that other threads can break off, and that can be closed whoever has died."""

from __future__ import annotations

import logging
import threading
from typing import Any

import tensorflow as tf

from tpk.cluster.sessions import abort, close_aborted

logger = logging.getLogger(__name__)

_SECONDS_TO_CLOSE = 3.0


class WorkerSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A session of a worker with parameter servers, in which a run may wait for a process that has died.

    The arguments are those of `tf.compat.v1.Session`.

    Example:
        ```python
        sess = WorkerSession(server.target, graph, config)
        threading.Timer(60.0, sess.break_off).start()
        sess.run(op)  # raises tf.errors.CancelledError after a minute
        ```
    """

    def __init__(self, target: str, graph: Any, config: Any) -> None:
        super().__init__(target, graph, config)
        self._end: threading.Thread | None = None

    def break_off(self) -> None:
        """Make the run under way, and each one after it, fail with `tf.errors.CancelledError`; from any thread."""
        if self._end is None and not self._closed:
            self._end = abort(self)

    def close(self) -> None:
        """Close the session, whether it was broken off or not."""
        self.break_off()
        close_aborted(self)
        if self._end is not None:
            self._end.join(_SECONDS_TO_CLOSE)
            if self._end.is_alive():
                logger.info("TensorFlow does not close a session whose server is gone; it is left behind")
