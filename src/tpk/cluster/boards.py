"""Boards: the places on TensorFlow's servers where workers write their states, and read those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tpk.cluster.connections import check_listening
from tpk.cluster.membership import Key, WorkerState
from tpk.cluster.sessions import SharedSession
from tpk.cluster.spec import PS, WORKER, Cluster, device_of

SECONDS_TO_ANSWER = 10.0
"""At most; so long a thread may be busy with a board whose process is dead."""


class Board(Protocol):
    """A place where states of workers are, on one process."""

    key: Key
    """The process: its job and index."""

    def exchange(self, state: WorkerState) -> Mapping[int, WorkerState]:
        """Write the state of this process, if it belongs here, and return those that are here, by rank.

        Raises:
            OSError: if nothing listens at the address of the process.
            tf.errors.OpError: if it does not answer in time.
        """

    def close(self) -> None:
        """Leave the process alone."""


class _SharedBoard:
    """What boards have in common: a graph and a session of their own, so that one who is silent holds up no other.

    Args:
        cluster: the processes, and which of them this one is.
        key: on which of them the board is.
        target: TensorFlow's server of this process.
        timeout: for how many seconds the process may be silent.
    """

    def __init__(self, cluster: Cluster, key: Key, target: str, timeout: float) -> None:
        self.key = key
        self._cluster = cluster
        self._target = target
        self._timeout = min(timeout, SECONDS_TO_ANSWER)
        self._graph = tf.Graph()
        self._sess: SharedSession | None = None
        self._has_answered = False

    def close(self) -> None:
        """Leave the process alone."""
        if self._sess is not None:
            self._sess.close()

    def _run(self, fetches: Any, feed: Mapping[Any, Any] | None = None) -> Any:
        if self._sess is None:
            if self.key != (self._cluster.job, self._cluster.index):
                check_listening(self._cluster.jobs[self.key[0]][self.key[1]], self._timeout)
            config = shared_config(self._cluster, self.key)
            config.operation_timeout_in_ms = max(int(self._timeout * 1000), 1)
            self._sess = SharedSession(self._target, self._graph, config)
        try:
            answer = self._sess.run(fetches, feed)
            self._has_answered = True
        except tf.errors.OpError as error:
            self._has_answered |= isinstance(error, tf.errors.FailedPreconditionError)
            if not self._has_answered:  # What listens may only have begun to start.
                self._sess.close()
                self._sess = None
            raise
        return answer


class VariableBoard(_SharedBoard):
    """A variable on a worker's own server; the worker writes its state there, and all others read it.

    The arguments are those of its base.
    """

    def __init__(self, cluster: Cluster, key: Key, target: str, timeout: float) -> None:
        super().__init__(cluster, key, target, timeout)
        _, rank = key
        with self._graph.as_default(), tf.device(f"{device_of(*key)}/cpu:0"):
            self._new = tf.compat.v1.placeholder(tf.string, [])
            cell = tf.compat.v1.get_variable(
                f"tpk_worker_state_{rank}", [], tf.string, tf.compat.v1.zeros_initializer(), use_resource=True
            )
            self._write, self._read = cell.assign(self._new, read_value=False), cell.read_value()

    def exchange(self, state: WorkerState) -> Mapping[int, WorkerState]:
        """Write the state of this process if the board is its own; return that of the worker otherwise."""
        _, rank = self.key
        if rank == self._cluster.rank:
            self._run(self._write, {self._new: state.encode()})
            return {}
        try:
            found = WorkerState.decode(self._run(self._read))
        except tf.errors.FailedPreconditionError:  # It has written none yet.
            found = None
        return {} if found is None else {rank: found}


class TableBoard(_SharedBoard):
    """A table on a parameter server with the states of all workers.

    Unlike a variable, a table is there for whoever comes first.

    Args:
        cluster: the processes, and which of them this one is.
        key: on which parameter server the board is.
        target: TensorFlow's server of this process.
        timeout: for how many seconds the parameter server may be silent.
        training: which training in this process this is.
    """

    def __init__(self, cluster: Cluster, key: Key, target: str, timeout: float, training: int) -> None:
        super().__init__(cluster, key, target, timeout)
        with self._graph.as_default(), tf.device(f"{device_of(*key)}/device:CPU:0"):
            table = tf.raw_ops.MutableHashTableV2(
                key_dtype=tf.int64, value_dtype=tf.string, shared_name=f"tpk/worker_states_{training}"
            )
            self._read = tf.raw_ops.LookupTableFindV2(
                table_handle=table, keys=tf.range(cluster.world_size, dtype=tf.int64), default_value=""
            )
            self._new = tf.compat.v1.placeholder(tf.string, [])
            self._write = tf.raw_ops.LookupTableInsertV2(
                table_handle=table, keys=tf.constant([cluster.index], tf.int64), values=[self._new]
            )

    def exchange(self, state: WorkerState) -> Mapping[int, WorkerState]:
        """Write the state of this worker; return those of all."""
        states, _ = self._run([self._read, self._write], {self._new: np.array(state.encode(), object)})
        return _decoded(states)

    def read(self) -> Mapping[int, WorkerState]:
        """Return the states of all workers."""
        return _decoded(self._run(self._read))


def boards_of(cluster: Cluster, target: str, timeout: float, training: int) -> list[Board]:
    """Return the boards of a cluster: one on each parameter server, or on each worker if there are none.

    The arguments are those of `TableBoard`.
    """
    if cluster.ps:
        return [TableBoard(cluster, (PS, index), target, timeout, training) for index in range(len(cluster.ps))]
    return [VariableBoard(cluster, (WORKER, rank), target, timeout) for rank in range(cluster.world_size)]


def shared_config(cluster: Cluster, key: Key) -> Any:
    """Return the `tf.compat.v1.ConfigProto` of a session of this process and another one, whose resources both see."""
    devices = sorted({device_of(*key), cluster.device})
    return tf.compat.v1.ConfigProto(allow_soft_placement=True, device_filters=devices)


def _decoded(states: Any) -> dict[int, WorkerState]:
    decoded = {rank: WorkerState.decode(data) for rank, data in enumerate(states)}
    return {rank: state for rank, state in decoded.items() if state is not None}
