"""What a worker tells the others about itself: a text on its own server, which they read."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import attrs
import tensorflow as tf

from tpk.cluster.sessions import close_shared
from tpk.cluster.spec import WORKER, Cluster, device_of

TRAINING, LEFT = "training", "left"


@attrs.frozen
class WorkerState:
    """What a worker tells the others about itself.

    Attributes:
        incarnation: differs between processes that have had one address.
        cluster: a digest of the addresses of all workers.
        training: the how manyeth training of its process this is.
        phase: ``"training"`` or ``"left"``.
        counts: how many waits of each kind it has begun; see `Peers.begin`.
        failure: the error by which its training has ended.
        is_own_failure: whether that is no consequence of another worker's.
    """

    incarnation: str
    cluster: str
    training: int
    phase: str = TRAINING
    counts: dict[str, int] = attrs.field(factory=dict)
    failure: str = ""
    is_own_failure: bool = True

    def has_left(self, training: int) -> bool:
        """Whether the worker takes no part in this training any more."""
        return self.training > training or (self.training == training and self.phase == LEFT)


class StateCell:
    """The place of a worker's state, on its server; every worker of the cluster can read it.

    Args:
        cluster: who is in the cluster, and who this process is.
        rank: whose state it is.
        target: the server of this process.
        timeout: for how many seconds reading and writing wait for the worker.
    """

    def __init__(self, cluster: Cluster, rank: int, target: str, timeout: float) -> None:
        self._graph = tf.Graph()
        with self._graph.as_default(), tf.device(f"{device_of(WORKER, rank)}/cpu:0"):
            self._new = tf.compat.v1.placeholder(tf.string, [])
            cell = tf.compat.v1.get_variable(
                f"tpk_worker_state_{rank}", [], tf.string, tf.compat.v1.zeros_initializer(), use_resource=True
            )
            self._write, self._read = cell.assign(self._new, read_value=False), cell.read_value()
        config = shared_config({cluster.rank, rank})
        config.operation_timeout_in_ms = max(int(timeout * 1000), 1)
        self._sess = tf.compat.v1.Session(target, self._graph, config)

    def write(self, state: WorkerState) -> None:
        """Put the state there."""
        self._sess.run(self._write, {self._new: json.dumps(attrs.asdict(state))})

    def read(self) -> WorkerState:
        """Return the state that is there.

        Raises:
            tf.errors.FailedPreconditionError: if the worker has put none there yet.
            tf.errors.OpError: if the worker does not answer.
        """
        return WorkerState(**json.loads(self._sess.run(self._read)))

    def close(self) -> None:
        """Leave the server alone; a read or write under way fails."""
        close_shared(self._sess)


def shared_config(ranks: set[int]) -> Any:
    """Return the `tf.compat.v1.ConfigProto` of a session over some workers, whose resources others see, too."""
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.device_filters.extend(device_of(WORKER, rank) for rank in sorted(ranks))
    return config


def digest(cluster: Cluster) -> str:
    """Return a text that is the same for workers of the same cluster."""
    return hashlib.sha256(json.dumps(cluster.workers).encode()).hexdigest()[:16]
