"""Process group of workers with TensorFlow's servers: queues on one of these, by which they reach the chief."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tpk.cluster.boards import shared_config
from tpk.cluster.heartbeat import Heartbeat
from tpk.cluster.server import RunningServer
from tpk.cluster.sessions import SharedSession
from tpk.cluster.spec import PS, WORKER, Cluster, device_of
from tpk.errors import PeerError
from tpk.strategies.processes.process_group import ProcessGroup, pack, unpack


class ClusterProcessGroup(ProcessGroup):
    """Each worker sends what it gives to the chief, and the chief sends all of it to each.

    The queues are on the first parameter server, or on the chief's server if there is none.

    Args:
        cluster: the processes of the training; this one is a worker.
        server: TensorFlow's server of this process.
        heartbeat: knows who of the others is missing.
    """

    def __init__(self, cluster: Cluster, server: RunningServer, heartbeat: Heartbeat) -> None:
        super().__init__(cluster.rank, cluster.world_size)
        self._heartbeat = heartbeat
        others = range(1, self.world_size)
        host = (PS if cluster.ps else WORKER, 0)
        graph = tf.Graph()
        with graph.as_default(), tf.device(f"{device_of(*host)}/device:CPU:0"):
            self._data = tf.compat.v1.placeholder(tf.string, [])
            to_chief = {rank: _queue(f"tpk/gather_{server.trainings}/from_rank{rank}") for rank in others}
            from_chief = {rank: _queue(f"tpk/gather_{server.trainings}/to_rank{rank}") for rank in others}
            if self.rank == 0:
                self._receive = [queue.dequeue() for queue in to_chief.values()]
                self._send = tf.group(*(queue.enqueue(self._data) for queue in from_chief.values()))
            else:
                self._receive = from_chief[self.rank].dequeue()
                self._send = to_chief[self.rank].enqueue(self._data)
        self._sess = SharedSession(server.target, graph, shared_config(cluster, host))

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return what each process gives, by rank; wait until all have."""
        try:
            with self._heartbeat.waiting("gather", self._sess):
                if self.rank == 0:
                    every = [data, *self._sess.run(self._receive)]
                    self._run_send(pack(every=every))
                else:
                    self._run_send(data)
                    every = unpack(self._sess.run(self._receive))["every"]
        except tf.errors.OpError as error:
            raise PeerError(f"the processes could not tell each other things: {error.message}") from error
        return list(every)

    def close(self) -> None:
        """Leave the other processes alone."""
        self._sess.close()

    def _run_send(self, data: bytes) -> None:
        # As an object: NumPy would take the zeros off the end of a byte string.
        self._sess.run(self._send, {self._data: np.array(data, object)})


def _queue(name: str) -> Any:
    # One value under way is enough: the next is sent when the answer to this one has come.
    return tf.queue.FIFOQueue(2, [tf.string], [[]], shared_name=name, name=name.replace("/", "_"))
