"""What the workers of a collective training tell each other besides the training: by queues on the chief's server."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tpk.cluster.heartbeat import Peers
from tpk.cluster.sessions import close_shared
from tpk.cluster.spec import WORKER, Cluster, device_of
from tpk.cluster.worker_state import shared_config
from tpk.errors import PeerError
from tpk.strategies.plain_data import pack, unpack
from tpk.strategies.process_group import ProcessGroup


class CollectiveProcessGroup(ProcessGroup):
    """Each worker sends what it gives to the chief, and the chief sends all of it to each.

    Args:
        cluster: who is in the cluster, and who this process is.
        target: the server of this process.
        training: the how manyeth training of the process this is.
        peers: knows who of the others is missing.
    """

    def __init__(self, cluster: Cluster, target: str, training: int, peers: Peers) -> None:
        super().__init__(cluster.rank, cluster.world_size)
        self._peers = peers
        others = range(1, self.world_size)
        graph = tf.Graph()
        with graph.as_default(), tf.device(f"{device_of(WORKER, 0)}/cpu:0"):
            self._data = tf.compat.v1.placeholder(tf.string, [])
            to_chief = {rank: _queue(f"tpk_exchange_{training}_from_{rank}") for rank in others}
            from_chief = {rank: _queue(f"tpk_exchange_{training}_to_{rank}") for rank in others}
            if self.rank == 0:
                self._receive = [queue.dequeue() for queue in to_chief.values()]
                self._send = tf.group(*(queue.enqueue(self._data) for queue in from_chief.values()))
            else:
                self._receive = from_chief[self.rank].dequeue()
                self._send = to_chief[self.rank].enqueue(self._data)
        self._sess = tf.compat.v1.Session(target, graph, shared_config({0, self.rank}))

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return what each process gives, by rank; wait until all have."""
        self._peers.begin("exchange", self._sess)
        try:
            if self.rank == 0:
                every = [data, *self._sess.run(self._receive)]
                self._run_send(pack(every=every))
            else:
                self._run_send(data)
                every = unpack(self._sess.run(self._receive))["every"]
        except tf.errors.OpError as error:
            guilty = self._peers.explain(error)
            if guilty is None:
                raise PeerError(f"the processes could not tell each other things: {error.message}") from error
            raise guilty from error
        finally:
            self._peers.end()
        return list(every)

    def close(self) -> None:
        """Leave the chief's server alone."""
        close_shared(self._sess)

    def _run_send(self, data: bytes) -> None:
        # As an object: NumPy would take the zeros off the end of a byte string.
        self._sess.run(self._send, {self._data: np.array(data, object)})


def _queue(name: str) -> Any:
    # One value under way is enough: the next is sent when the answer to this one has come.
    return tf.queue.FIFOQueue(2, [tf.string], [[]], shared_name=name)
