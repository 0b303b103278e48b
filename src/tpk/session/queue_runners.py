"""Queue runners: threads that fill the queues of a graph, where the input of a model is made of ops of TensorFlow 1.

`tf.compat.v1.train.range_input_producer`, `tf.compat.v1.train.batch` and their like only add a queue to the graph, and
leave word in the collection ``QUEUE_RUNNERS``: a step waits for ever unless somebody fills it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


@contextmanager
def running_queues(session: Any) -> Iterator[None]:
    """Within the context, the queue runners of the session's graph fill their queues.

    Args:
        session: a session whose variables have their values.

    Raises:
        Exception: what a queue runner has raised, at the end of the context.
    """
    coordinator = tf.train.Coordinator()
    for runner in session.graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS):
        runner.create_threads(session, coordinator, daemon=True, start=True)
    try:
        yield
    finally:
        coordinator.request_stop()
        coordinator.join(ignore_live_threads=True)
