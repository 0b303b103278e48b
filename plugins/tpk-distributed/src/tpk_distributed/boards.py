"""Boards: tables on TensorFlow's servers where workers write their own states and read the other workers' states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpk_distributed.cluster import PS, device_of
from tpk_distributed.connections import check_listening
from tpk_distributed.membership import Key, WorkerState
from tpk_distributed.tensorflow_server import RunningServer, SharedSession

SECONDS_TO_ANSWER = 10.0
"""The longest time that a thread waits for a board whose process does not answer."""


class Board:
    """A table of worker states on the TensorFlow server of one process.

    Each board has its own graph and session, so that a silent process delays no other board. The table exists as soon
    as any process asks for it.

    Args:
        server: TensorFlow's server of this process.
        key: the process that has the board.

    Attributes:
        key: the job and index of the process that has the board.
        is_written: whether this process writes its state there: on each parameter server, and on its own server.
    """

    def __init__(self, server: RunningServer, key: Key) -> None:
        cluster = server.cluster
        self.key = key
        self._is_own = key == (cluster.job, cluster.index)
        self.is_written = key[0] == PS or self._is_own
        self._server = server
        self._graph = tf.Graph()
        self._sess: SharedSession | None = None
        self._has_answered = False
        with self._graph.as_default(), tf.device(f"{device_of(*key)}/device:CPU:0"):
            table = tf.raw_ops.MutableHashTableV2(
                key_dtype=tf.int64, value_dtype=tf.string, shared_name=f"tpk/worker_states_{server.trainings}"
            )
            self._read = tf.raw_ops.LookupTableFindV2(
                table_handle=table, keys=tf.range(cluster.world_size, dtype=tf.int64), default_value=""
            )
            self._new = tf.compat.v1.placeholder(tf.string, [])
            self._write = tf.raw_ops.LookupTableInsertV2(
                table_handle=table, keys=tf.constant([cluster.index], tf.int64), values=[self._new]
            )

    def exchange(self, state: WorkerState | None, seconds: float) -> Mapping[int, WorkerState]:
        """Write the state of this worker if `is_written`, and return the states on the board, by rank.

        Args:
            state: the state of this worker; None writes nothing.
            seconds: how long to wait for an answer, up to `SECONDS_TO_ANSWER`.

        Raises:
            OSError: if nothing listens at the address of the process.
            tf.errors.OpError: if the process does not answer in time.
        """
        fetches: list[Any] = [self._read]
        feed: dict[Any, Any] = {}
        if state is not None and self.is_written:
            fetches, feed = [self._read, self._write], {self._new: np.array(state.encode(), object)}
        encoded, *_ = self._run(fetches, feed, min(seconds, SECONDS_TO_ANSWER))
        return {rank: WorkerState.decode(data) for rank, data in enumerate(encoded) if data}

    def close(self) -> None:
        """Close the session."""
        if self._sess is not None:
            self._sess.close()

    def _run(self, fetches: list[Any], feed: Mapping[Any, Any], seconds: float) -> Any:
        if self._sess is None:
            if not self._is_own:
                check_listening(self._server.cluster.jobs[self.key[0]][self.key[1]], seconds)
            self._sess = self._server.session_with(*self.key, self._graph, int(SECONDS_TO_ANSWER * 1000))
        options = tf.compat.v1.RunOptions(timeout_in_ms=int(seconds * 1000))
        try:
            answer = self._sess.run(fetches, feed, options)
        except tf.errors.OpError:
            if not self._has_answered:  # The process may still be starting.
                self._sess.close()
                self._sess = None
            raise
        self._has_answered = True
        return answer
