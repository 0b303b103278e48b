"""What workers tell each other by way of a parameter server."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.cluster.boards import Presence, config_of_own_session
from tpk.cluster.server import RunningServer
from tpk.cluster.sessions import WorkerSession
from tpk.cluster.spec import PS, WORKER, Cluster, device_of
from tpk.cluster.timeouts import Patience
from tpk.errors import PeerError
from tpk.strategies.process_group import ProcessGroup

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.25

_SECONDS_OF_ARRIVAL = 5.0
"""How long what somebody has sent before leaving may be on its way."""


class ServerProcessGroup(ProcessGroup):
    """The exchange of workers that have parameter servers: each has a queue on the first one, in which others put.

    Args:
        cluster: the processes of the training; this one is a worker.
        server: TensorFlow's server of this process.
        presence: knows whether the others live.
        patience: how long others may take to come to the same point.
    """

    def __init__(self, cluster: Cluster, server: RunningServer, presence: Presence, patience: Patience) -> None:
        super().__init__(cluster.rank, cluster.world_size)
        self._cluster = cluster
        self._presence = presence
        self._patience = patience
        self._round = 0
        self._received: dict[tuple[int, int], bytes] = {}
        self._failure: tf.errors.OpError | None = None
        self._arrival = threading.Condition()
        with tf.Graph().as_default() as graph, tf.device(device_of(PS, 0) + "/device:CPU:0"):
            queues = [_queue_for(rank, server.trainings) for rank in range(self.world_size)]
            self._parcel = [tf.compat.v1.placeholder(dtype, []) for dtype in (tf.int64, tf.int64, tf.string)]
            self._send = [queue.enqueue(self._parcel) for queue in queues]
            self._receive = queues[self.rank].dequeue()
        self._sess = WorkerSession(server.target, graph, config_of_own_session(cluster, 0))
        self._thread = threading.Thread(target=self._keep_receiving, name="tpk-exchange", daemon=True)
        self._thread.start()

    def meet(self) -> None:
        """Wait until all others have come for the first time.

        Raises:
            PeerError: if some do not within the time that they have to start; it says which.
        """
        self._gather(b"", self._patience.start, "did not start within {0:g} s; start_timeout=<seconds> gives it longer")

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return what each process gives, by rank; wait until all have."""
        return self._gather(data, self._patience.wait, "lives, but has not come for {0:g} s")

    def _gather(self, data: bytes, seconds: float, complaint: str) -> list[bytes]:
        turn, self._round = self._round, self._round + 1
        # As an object: NumPy would take the zeros off the end of a byte string.
        parcel = dict(zip(self._parcel, (turn, self.rank, np.array(data, object)), strict=True))
        try:
            self._sess.run(self._send, parcel)
        except tf.errors.OpError as error:
            raise self._lost(error) from error
        begun = reported = all_are_there = time.monotonic()
        with self._arrival:
            while missing := [rank for rank in range(self.world_size) if (turn, rank) not in self._received]:
                now = time.monotonic()
                gone = self._check(missing)
                if not gone:
                    all_are_there = now
                elif now - all_are_there > _SECONDS_OF_ARRIVAL:
                    raise PeerError(f"{self._names(gone)} has ended its training already.")
                if now - begun > seconds:
                    raise PeerError(f"{self._names(missing)} {complaint.format(seconds)}. See what became of it.")
                if now - reported > self._patience.late:
                    reported = now
                    logger.warning("waiting since %.0f s for %s", now - begun, self._names(missing))
                self._arrival.wait(_SECONDS_BETWEEN_LOOKS)
            return [self._received.pop((turn, rank)) for rank in range(self.world_size)]

    def break_off(self) -> None:
        """Make what is under way fail; from any thread."""
        self._sess.break_off()

    def close(self) -> None:
        """End the thread that receives; nothing can be exchanged any more."""
        self._sess.close()
        self._thread.join(_SECONDS_BETWEEN_LOOKS)

    def _check(self, missing: list[int]) -> list[int]:
        """Return who of those that are missing has left.

        Raises:
            PeerError: if one of them has failed or died, or a parameter server has.
        """
        if self._failure is not None:
            raise self._lost(self._failure)
        failure = self._presence.failure
        if failure is not None:
            raise failure
        return [rank for rank in missing if self._presence.attendance.has_left(rank)]

    def _keep_receiving(self) -> None:
        while True:
            try:
                turn, rank, data = self._sess.run(self._receive)
            except (tf.errors.OpError, RuntimeError) as error:  # A session that was closed raises the latter.
                with self._arrival:
                    self._failure = error if isinstance(error, tf.errors.OpError) else None
                    self._arrival.notify_all()
                return
            with self._arrival:
                self._received[int(turn), int(rank)] = data
                self._arrival.notify_all()

    def _lost(self, error: tf.errors.OpError) -> PeerError:
        """Return what has happened to a parameter server, since it cannot be asked any more."""
        logger.info("%s", error.message)
        return self._presence.failure or PeerError(f"{self._presence.servers_in_words()} cannot be reached any more")

    def _names(self, ranks: list[int]) -> str:
        return ", ".join(self._cluster.name_of(WORKER, rank) for rank in ranks)


def _queue_for(rank: int, training: int) -> Any:
    # Without a limit: who is ahead by a round does not wait for those who are behind.
    name = f"tpk/exchange_{training}/for_rank{rank}"
    return tf.queue.FIFOQueue(-1, [tf.int64, tf.int64, tf.string], [[], [], []], shared_name=name)
