"""A session on TensorFlow's servers that another thread can break off."""

from __future__ import annotations

from contextlib import suppress

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session


class WorkerSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A session of a worker, in which a run may wait for another process that has died.

    Example:
        ```python
        sess = WorkerSession(server.target, graph, config)
        threading.Timer(60.0, sess.break_off).start()
        sess.run(op)  # raises tf.errors.CancelledError after a minute
        ```
    """

    def break_off(self) -> None:
        """Make the run under way, and each one after it, fail with `tf.errors.CancelledError`; from any thread.

        Closed by `close`, the session would rather refuse later runs with a `RuntimeError`, which tells the user that
        the program is wrong.
        """
        if not self._closed:
            pywrap_tf_session.TF_CloseSession(self._session)

    def close(self) -> None:
        """Close the session, whether it was broken off or not."""
        with suppress(tf.errors.CancelledError):
            super().close()
