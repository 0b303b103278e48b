"""The service of a parameter server, which holds variables until the workers have left."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing

from tpk.errors import PeerError
from tpk.train.resume.preemption import handling_signals
from tpk_distributed.boards import SECONDS_TO_ANSWER, Board
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
    board = Board(server, (PS, cluster.index))
    pause = threading.Event()
    started_at = time.monotonic()
    logger.info("%s serves %d workers", cluster.name, cluster.world_size)
    with closing(board), handling_signals():
        while members.staying() or members.missing():
            pause.wait(SECONDS_BETWEEN_BEATS)
            members.note(board.exchange(None, SECONDS_TO_ANSWER))
            # As long as there are workers, they detect missing processes themselves, and then leave.
            waited = time.monotonic() - started_at
            if waited > timeouts.start and not members.staying():
                members.check_start(waited)
    failures = members.to_blame()
    if failures:
        raise PeerError("; ".join(failures))
    logger.info("all workers have left")
