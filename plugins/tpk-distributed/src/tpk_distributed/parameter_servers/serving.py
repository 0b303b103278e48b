"""The service of a parameter server, which holds variables until the workers have left."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from tpk.errors import PeerError, Preempted
from tpk_distributed.boards import Board
from tpk_distributed.cluster import PS
from tpk_distributed.membership import SECONDS_BETWEEN_BEATS, Membership
from tpk_distributed.tensorflow_server import RunningServer
from tpk_distributed.timeouts import Timeouts

logger = logging.getLogger(f"tpk.{__name__}")


def serve_workers(server: RunningServer, timeouts: Timeouts) -> None:
    """Wait until all workers have joined and left.

    A termination signal takes effect only then, because the workers, which get it as well, still need the variables
    for a last checkpoint. A second signal takes effect immediately.

    Args:
        server: TensorFlow's server of this process, which is a parameter server.
        timeouts: how long to wait for workers and for their heartbeats.

    Raises:
        PeerError: if a worker does not start, fails or dies; the message names it.
        Preempted, KeyboardInterrupt: if a signal arrived.
    """
    cluster = server.cluster
    members = Membership(cluster, server.trainings, timeouts)
    board = Board(server, (PS, cluster.index), timeouts.heartbeat)
    pause = threading.Event()
    started_at = time.monotonic()
    logger.info("%s serves %d workers", cluster.name, cluster.world_size)
    with closing(board), _postponed_signals():
        while members.staying() or members.missing():
            pause.wait(SECONDS_BETWEEN_BEATS)
            members.note(board.read())
            # As long as there are workers, they detect missing processes themselves, and then leave.
            waited = time.monotonic() - started_at
            if waited > timeouts.start and not members.staying():
                members.check_start(waited)
    failures = members.to_blame()
    if failures:
        raise PeerError("; ".join(failures))
    logger.info("all workers have left")


@contextmanager
def _postponed_signals() -> Iterator[None]:
    """Postpone the first termination signal to the end of the context."""
    arrived: list[int] = []
    replaced: dict[int, Any] = {}

    def restore() -> None:
        for signum, handler in replaced.items():
            signal.signal(signum, handler)

    def note(signum: int, frame: Any) -> None:
        arrived.append(signum)
        restore()

    if threading.current_thread() is threading.main_thread():
        for signum in Preempted.SIGNALS:
            if signal.getsignal(signum) in (signal.SIG_DFL, signal.default_int_handler):
                replaced[signum] = signal.signal(signum, note)
    try:
        yield
    finally:
        restore()
    if arrived:
        raise Preempted.by(arrived[0])
