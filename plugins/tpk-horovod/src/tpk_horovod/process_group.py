"""Process group by Horovod: what processes tell each other outside of the graph of the training."""

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
    """Gathers bytes by Horovod's `allgather`, in a small graph and session of its own.

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
        """Return what each process gives, by rank; wait until all have.

        Raises:
            PeerError: if a process is gone, or has not come in time.
        """
        # The chunks of the ranks come one after the other, so each tells its length.
        mine = np.frombuffer(_LENGTH.pack(len(data)) + data, np.uint8)
        with self._lock, self._peers.waiting():
            if self._is_closed:
                raise PeerError("this process has parted from the others already; nothing can be exchanged any more.")
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
            # Else all sessions of a process compute in as many threads as the first one, which is this, has.
            with environment({"TF_OVERRIDE_GLOBAL_THREADPOOL": "1"}):
                self._sess = tf.compat.v1.Session(graph=graph, config=config)
            call: Callable[[Any], Any] = self._sess.make_callable(chunks, [chunk])
        return call
