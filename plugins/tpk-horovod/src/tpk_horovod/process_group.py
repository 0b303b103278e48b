"""A process group on Horovod: communication between processes outside the training graph."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import PeerError
from tpk.strategies import ProcessGroup
from tpk_horovod.bootstrap import environment
from tpk_horovod.failures import Peers

_LENGTH = struct.Struct("<Q")


class HorovodProcessGroup(ProcessGroup):
    """Gathers bytes with Horovod's `allgather`, in a small separate graph and session.

    Args:
        hvd: the module `horovod.tensorflow`, initialized.
        peers: the other processes.
    """

    def __init__(self, hvd: Any, peers: Peers) -> None:
        super().__init__(rank=hvd.rank(), world_size=hvd.size())
        self._hvd = hvd
        self._peers = peers
        self._lock = threading.Lock()
        self._call: Callable[[Any], Any] | None = None
        self._sess: Any = None
        self._is_closed = False

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of each process, by rank; wait until all processes have called this.

        Raises:
            PeerError: if a process has died or does not answer in time.
        """
        # `allgather` concatenates the chunks of the ranks, so each chunk starts with its length.
        mine = np.frombuffer(_LENGTH.pack(len(data)) + data, np.uint8)
        with self._lock, self._peers.waiting():
            if self._is_closed:
                raise PeerError("this process has already left the process group, so it cannot exchange values.")
            if self._call is None:
                self._call = self._build()
            chunks = self._call(mine).tobytes()
        received, start = [], 0
        for _ in range(self.world_size):
            begin = start + _LENGTH.size
            start = begin + _LENGTH.unpack(chunks[start:begin])[0]
            received.append(chunks[begin:start])
        return received

    def close(self) -> None:
        """Close the session."""
        with self._lock:
            self._is_closed = True
            if self._sess is not None:
                self._sess.close()

    def _build(self) -> Callable[[Any], Any]:
        config = tf.compat.v1.ConfigProto(
            device_count={"GPU": 0},
            intra_op_parallelism_threads=1,
            inter_op_parallelism_threads=1,
            use_per_session_threads=True,
        )
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            chunk = tf.compat.v1.placeholder(tf.uint8, [None])
            chunks = self._hvd.allgather(chunk, name="horovod_exchange")
            # Otherwise all sessions of the process would use the thread count of the first session, which is this one.
            with environment({"TF_OVERRIDE_GLOBAL_THREADPOOL": "1"}):
                self._sess = tf.compat.v1.Session(graph=graph, config=config)
            call: Callable[[Any], Any] = self._sess.make_callable(chunks, [chunk])
        return call
