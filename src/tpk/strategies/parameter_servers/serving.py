"""What a parameter server does: it keeps variables until the workers have left."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk.cluster.boards import SECONDS_BETWEEN_SIGNS, PresenceTable, config_of_own_session
from tpk.cluster.membership import Attendance
from tpk.cluster.server import RunningServer
from tpk.cluster.spec import Cluster
from tpk.cluster.timeouts import Patience
from tpk.errors import PeerError, Preempted

logger = logging.getLogger(__name__)

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGINT") if hasattr(signal, name))


def serve_workers(cluster: Cluster, server: RunningServer, patience: Patience) -> None:
    """Wait until all workers have come, and left.

    A signal that asks for the end takes effect only then: the workers, which get it as well, still need the variables
    for a last checkpoint. A second one takes effect at once.

    Args:
        cluster: the processes of the training; this one is a parameter server.
        server: TensorFlow's server of this process.
        patience: how long to wait for workers, and for signs of them.

    Raises:
        PeerError: if a worker does not come, fails or dies; it says which.
        Preempted, KeyboardInterrupt: if a signal has come.
    """
    with tf.Graph().as_default() as graph:
        signs = PresenceTable(cluster.index, cluster.world_size, server.trainings).read
    pause = threading.Event()
    started_at = time.monotonic()
    attendance = Attendance(cluster, patience.answer, silence=3 * SECONDS_BETWEEN_SIGNS)
    logger.info("%s serves %d workers", cluster.name_of(cluster.job, cluster.index), cluster.world_size)
    with (
        tf.compat.v1.Session(server.target, graph, config_of_own_session(cluster, cluster.index)) as sess,
        _postponed_signals(),
    ):
        while not attendance.are_gone() or attendance.absent:
            pause.wait(SECONDS_BETWEEN_SIGNS)
            attendance.note(sess.run(signs))
            # As long as there are workers, they find out by themselves who is missing, and leave then.
            is_late = time.monotonic() - started_at > patience.start
            if attendance.absent and is_late and attendance.are_gone():
                names = ", ".join(attendance.absent)
                raise PeerError(
                    f"{names} did not start within {patience.start:g} s; start_timeout=<seconds> gives it longer."
                )
    failures = attendance.failures()
    if failures:
        raise PeerError("; ".join(failures))
    logger.info("all workers have left")


@contextmanager
def _postponed_signals() -> Iterator[None]:
    """Within the context the first signal that asks for the end is only noted; it takes effect at its end."""
    arrived: list[int] = []
    replaced: dict[int, Any] = {}

    def restore() -> None:
        for signum, handler in replaced.items():
            signal.signal(signum, handler)

    def note(signum: int, frame: Any) -> None:
        arrived.append(signum)
        restore()

    if threading.current_thread() is threading.main_thread():
        for signum in _SIGNALS:
            if signal.getsignal(signum) in (signal.SIG_DFL, signal.default_int_handler):
                replaced[signum] = signal.signal(signum, note)
    try:
        yield
    finally:
        restore()
    if arrived:
        raise KeyboardInterrupt if arrived[0] == signal.SIGINT else Preempted(arrived[0])
