"""Who of the workers lives, and where it is: each of them tells all parameter servers so, again and again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.cluster.connections import Connections, is_listening
from tpk.cluster.membership import ALIVE, ENDED, FAILED, LEFT, Attendance, Sign
from tpk.cluster.server import RunningServer
from tpk.cluster.sessions import WorkerSession
from tpk.cluster.spec import PS, Cluster, device_of
from tpk.cluster.timeouts import Patience
from tpk.errors import PeerError

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_SIGNS = 1.0
_SECONDS_TO_LEAVE = 5.0
_SECONDS_TO_ANSWER = 2.0


class PresenceTable:
    """The table on a parameter server in which workers write their signs.

    Args:
        server: the number of the parameter server.
        world_size: how many workers there are.
        training: the how manyeth training of the process this is.
    """

    def __init__(self, server: int, world_size: int, training: int) -> None:
        with tf.device(f"{device_of(PS, server)}/device:CPU:0"):
            # Unlike a variable, a table is there for whoever comes first.
            self._handle = tf.raw_ops.MutableHashTableV2(
                key_dtype=tf.int64, value_dtype=tf.string, shared_name=f"tpk/presence_{training}"
            )
            self.read = tf.raw_ops.LookupTableFindV2(
                table_handle=self._handle, keys=tf.range(world_size, dtype=tf.int64), default_value=""
            )

    def write(self, rank: int, sign: Any) -> Any:
        """Return the op that writes the sign of a worker, a string tensor."""
        with tf.device(self._handle.device):
            keys = tf.constant([rank], tf.int64)
            return tf.raw_ops.LookupTableInsertV2(table_handle=self._handle, keys=keys, values=[sign])


class Presence:
    """Tells the parameter servers that this worker lives, and looks whether all others do, in a thread of its own.

    Args:
        cluster: the processes of the training; this one is a worker.
        server: TensorFlow's server of this process.
        patience: how long to wait.
        break_off: called in the thread when another worker is found to have failed or died. If it is a parameter server
            that does not answer, the connections to it are ended instead.
    """

    def __init__(
        self, cluster: Cluster, server: RunningServer, patience: Patience, break_off: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._connections = Connections(cluster.ps)
        self._patience = patience
        self._break_off = break_off
        self.attendance = Attendance(cluster, patience.answer, silence=3 * SECONDS_BETWEEN_SIGNS)
        self._count = 0
        self._state = ALIVE
        self._steps = 0
        self._in_step_since: float | None = None
        self._reported_at = 0.0
        self._failure: str | None = None
        self._ends = threading.Event()
        self._books = [_Book(cluster, each, server) for each in range(len(cluster.ps))]
        self._thread = threading.Thread(target=self._watch, name="tpk-presence", daemon=True)

    def start(self) -> None:
        """Give the first sign, and go on in the thread.

        Raises:
            PeerError: if a parameter server cannot be reached.
        """
        silent = self._give_sign()
        if silent:
            raise PeerError(f"{self._in_words(silent)} cannot be reached.")
        self._thread.start()

    def begin_step(self) -> None:
        """Say that a step begins, in which this worker may wait for others."""
        self._steps += 1
        self._in_step_since = time.monotonic()

    def end_step(self) -> None:
        """Say that it is done."""
        self._in_step_since = None

    def end(self) -> None:
        """Say that this worker makes no more steps; one that is under way has failed."""
        if self._in_step_since is not None:
            self._in_step_since = None
            self._steps -= 1
        self._state = ENDED

    @property
    def failure(self) -> PeerError | None:
        """That another process has failed or died, if so; a new error each time."""
        return None if self._failure is None else PeerError(self._failure)

    def wait_for_failure(self, seconds: float) -> PeerError | None:
        """Return what has happened to another process, once that is known; None if nothing is after that time."""
        self._ends.wait(seconds)
        return self.failure

    def servers_in_words(self) -> str:
        """Return the parameter servers that do not listen; or all of them, if it must be for another reason."""
        servers = range(len(self._cluster.ps))
        return self._in_words([each for each in servers if not is_listening(self._cluster.ps[each])] or servers)

    def leave(self, failure: BaseException | None) -> None:
        """Tell the parameter servers that this worker leaves.

        Args:
            failure: what it leaves by, if it is under way. What is no `Exception`, such as a signal, is no failure.
        """
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join(_SECONDS_TO_LEAVE)
        self._count += 1
        sign = Sign(LEFT, self._count, self._steps)
        if isinstance(failure, Exception):
            line = f"{type(failure).__name__}: {failure}".partition("\n")[0][:1000]
            # Who fails because others do is not to blame.
            sign = Sign(FAILED, self._count, self._steps, line, isinstance(failure, PeerError))
        for server, book in enumerate(self._books):
            try:
                book.sign(sign, _SECONDS_TO_LEAVE)
            except tf.errors.OpError as error:
                if self._failure is None:
                    logger.warning(
                        "%s could not be told that this worker leaves: %s", self._in_words([server]), error.message
                    )
            book.close()

    def _watch(self) -> None:
        while not self._ends.wait(SECONDS_BETWEEN_SIGNS):
            silent = self._give_sign()
            if silent:
                failures = [f"{self._in_words(silent)} cannot be reached any more"]
            elif self._books[0].is_answering:
                failures = self.attendance.failures() or self._in_vain()
            else:  # That nothing is heard of the others is not their fault.
                failures = []
            if failures and not self._ends.is_set():
                self._failure = "; ".join(failures)
                logger.error("%s", self._failure)
                self._ends.set()
                if silent:
                    self._connections.hang_up([self._cluster.ps[server] for server in silent])
                else:
                    self._break_off()

    def _in_words(self, servers: Sequence[int]) -> str:
        return ", ".join(self._cluster.name_of(PS, server) for server in servers)

    def _give_sign(self) -> list[int]:
        """Give a sign, and take note of those of the others; return which parameter servers do not answer any more."""
        self._count += 1
        sign = Sign(self._state, self._count, self._steps)
        silent = []
        for server, book in enumerate(self._books):
            try:
                signs = book.sign(sign, min(self._patience.answer, _SECONDS_TO_ANSWER))
            except tf.errors.OpError as error:
                is_late = isinstance(error, tf.errors.DeadlineExceededError)
                if not is_late or time.monotonic() - book.answered_at > self._patience.answer:
                    logger.info("%s", error.message)
                    silent.append(server)
                continue
            if server == 0:
                self.attendance.note(signs)
        return silent

    def _in_vain(self) -> list[str]:
        """Return for whom this worker waits in vain in its step; report those who are late."""
        since, now = self._in_step_since, time.monotonic()
        # At once would be too soon: the data may be about to end here, too.
        if since is None or now - since < self._patience.late:
            return []
        ended, behind = self.attendance.ended_before(self._steps), "; ".join(self.attendance.behind(self._steps))
        if ended:
            return [f"{'; '.join(ended)}, has ended its training, while this process is in step {self._steps}"]
        if behind and now - since > self._patience.wait:
            return [
                f"{behind}, lives, but this process has waited for it for {now - since:.0f} s in step {self._steps}"
            ]
        if behind and now - self._reported_at > self._patience.late:
            self._reported_at = now
            logger.warning("waiting in step %d since %.0f s for %s", self._steps, now - since, behind)
        return []


class _Book:
    """The table on one parameter server, in a session of its own: who does not answer holds up no other one.

    Args:
        cluster: the processes of the training; this one is a worker.
        server: the number of the parameter server.
        own: TensorFlow's server of this process.

    Attributes:
        answered_at: when the parameter server has answered last, as `time.monotonic` counts.
        is_answering: whether it has answered the last time that it was asked.
    """

    def __init__(self, cluster: Cluster, server: int, own: RunningServer) -> None:
        self.answered_at = time.monotonic()
        self.is_answering = False
        with tf.Graph().as_default() as graph:
            table = PresenceTable(server, cluster.world_size, own.trainings)
            self._sign = tf.compat.v1.placeholder(tf.string, [])
            self._fetches = [table.read, table.write(cluster.rank, self._sign)]
        self._sess = WorkerSession(own.target, graph, config_of_own_session(cluster, server))

    def sign(self, sign: Sign, seconds: float) -> Sequence[bytes]:
        """Write the sign of this worker; return the last ones of all workers.

        Raises:
            tf.errors.DeadlineExceededError: if there is no answer in time.
            tf.errors.OpError: if there is none at all.
        """
        self.is_answering = False
        options = tf.compat.v1.RunOptions(timeout_in_ms=max(int(seconds * 1000), 1))
        signs, _ = self._sess.run(self._fetches, {self._sign: np.array(sign.encode(), object)}, options)
        self.answered_at, self.is_answering = time.monotonic(), True
        found: Sequence[bytes] = signs
        return found

    def close(self) -> None:
        """Leave the table alone."""
        self._sess.close()


def config_of_own_session(cluster: Cluster, server: int) -> Any:
    """Return the `tf.compat.v1.ConfigProto` of a session that this process has with one parameter server.

    Args:
        cluster: the processes of the training.
        server: the number of the parameter server.
    """
    devices = {device_of(PS, server), cluster.device}
    return tf.compat.v1.ConfigProto(allow_soft_placement=True, device_filters=sorted(devices))
