"""A count of the datapoints that steps have consumed, kept by the graph itself."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import tensorflow as tf


class ConsumedCounter:
    """A counter in the graph that goes on whenever a datapoint is consumed, whoever runs the step, and in however many
    threads.

    It is counted before the datapoint is there; so an attempt that fails, as at the end of the data, is counted, too.

    Args:
        name: of its variable.

    Attributes:
        resumed_at: from where it was started.
    """

    def __init__(self, name: str) -> None:
        with tf.name_scope(name):
            # In no collection, so that it is neither saved nor initialized by others: it starts with the data.
            self._count = tf.compat.v1.Variable(
                0, dtype=tf.int64, trainable=False, use_resource=True, collections=[], name="count"
            )
            self._one = tf.constant(1, tf.int64)
            self._value = self._count.read_value()
        self._session: Any = None
        self._last = 0
        self.resumed_at = 0

    def count(self, name: str) -> Any:
        """Return an op that counts one datapoint more; what takes it must depend on that."""
        return tf.raw_ops.AssignAddVariableOp(resource=self._count.handle, value=self._one, name=name)

    def start(self, session: Any, resumed_at: int) -> None:
        """Start from `resumed_at`."""
        self._session = session
        self.resumed_at = self._last = resumed_at
        session.run(self._count.initializer)

    def stop(self) -> None:
        """Keep the count as it is, and let go of the session."""
        with suppress(RuntimeError, tf.errors.OpError):  # Somebody may have closed the session.
            self._last = self.value
        self._session = None

    @property
    def value(self) -> int:
        """How many datapoints have been consumed."""
        if self._session is None:
            return self._last
        return self.resumed_at + int(self._session.run(self._value))
