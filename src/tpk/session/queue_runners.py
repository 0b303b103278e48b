"""Queue runners: threads that fill the queues of a graph, where the input of a model is made of ops of TensorFlow 1.

`tf.compat.v1.train.range_input_producer`, `tf.compat.v1.train.batch` and their like only add a queue to the graph, and
leave word in the collection ``QUEUE_RUNNERS``: a step waits for ever unless somebody fills it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

_SECONDS_TO_END = 10.0


@contextmanager
def running_queues(session: Any, closes_session: bool) -> Iterator[None]:
    """Within the context, the queue runners of the session's graph fill their queues.

    Args:
        session: a session whose variables have their values.
        closes_session: whether the session is closed at the end of the context, if there are queue runners. That ends
            those that wait for a queue without a runner, which the script fills; they would wait for ever.

    Raises:
        Exception: what a queue runner has raised, at the end of the context.
    """
    coordinator = tf.train.Coordinator()
    runners = session.graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
    for runner in runners:
        runner.create_threads(session, coordinator, daemon=True, start=True)
    try:
        yield
    finally:
        coordinator.request_stop()
        if runners and closes_session:
            session.close()
        coordinator.join(ignore_live_threads=True, stop_grace_period_secs=_SECONDS_TO_END)
