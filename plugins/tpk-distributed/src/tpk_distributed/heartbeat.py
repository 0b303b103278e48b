"""The heartbeat: threads that tell other processes that this one is alive, and detect which of them are not."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import tensorflow as tf

from tpk.errors import PeerError
from tpk_distributed.boards import SECONDS_TO_ANSWER, Board
from tpk_distributed.cluster import PS, WORKER
from tpk_distributed.connections import Connections
from tpk_distributed.membership import (
    KINDS,
    LEFT,
    SECONDS_BETWEEN_BEATS,
    Membership,
    Wait,
    WorkerState,
    names_of,
)
from tpk_distributed.tensorflow_server import RunningServer, SharedSession
from tpk_distributed.timeouts import Timeouts

logger = logging.getLogger(f"tpk.{__name__}")

_REMOTE = re.compile(r"/job:(worker|ps)/replica:0/task:(\d+)")
_FROM_ELSEWHERE = ("remote target", "Collective ops is aborted by", "Session::Close()", "Operation timed out")
_CONNECTION_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
_SECONDS_TO_FIND_OUT = 10.0
_SECONDS_TO_CLOSE = 5.0


class Heartbeat:
    """The heartbeat of a worker: a thread for each board, and a thread that monitors runs that wait for others.

    While this worker waits for other processes in a run (see `begin`), the run is aborted if one of them is gone, has
    left, or is much too late. If one is a little late, that is logged.

    Args:
        server: TensorFlow's server of this process, which is a worker.
        timeouts: how long to wait for other processes.

    Attributes:
        members: the known states of the other processes.
        failure: the error that ends the training of this process because of another one, or None.
    """

    def __init__(self, server: RunningServer, timeouts: Timeouts) -> None:
        cluster = server.cluster
        self.members = Membership(cluster, server.trainings, timeouts)
        self._cluster, self._timeouts = cluster, timeouts
        self._connections = Connections([*cluster.workers[:1], *cluster.ps])
        self._state = WorkerState.first(cluster, server.trainings)
        self.failure: PeerError | None = None
        self._counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._wait: Wait | None = None
        self._background: Wait | None = None
        self._reported_at = 0.0
        self._changed = threading.Condition()
        self._is_stopped = threading.Event()
        # One on each parameter server, or on each worker if the cluster has only workers.
        job, count = (PS, len(cluster.ps)) if cluster.ps else (WORKER, cluster.world_size)
        boards = [Board(server, (job, index)) for index in range(count)]
        self._beat_now = {board.key: threading.Event() for board in boards}
        self._threads = [
            threading.Thread(
                target=self._keep_beating, name="tpk-heartbeat-{}-{}".format(*board.key), args=(board,), daemon=True
            )
            for board in boards
        ]
        self._threads.append(threading.Thread(target=self._watch, name="tpk-heartbeat", daemon=True))
        for thread in self._threads:
            thread.start()

    def meet(self) -> None:
        """Wait until all other processes have started.

        Raises:
            PeerError: if some have not started in time, or are gone again.
            MismatchError: if one belongs to another cluster.
        """
        begun = time.monotonic()
        report = begun + min(5.0, self._timeouts.late_warning)
        while True:
            now = time.monotonic()
            missing = self.members.check_start(now - begun)
            if not missing:
                return
            if now >= report:
                logger.info("waiting for %s to start, since %d s", names_of(missing), now - begun)
                report = now + self._timeouts.late_warning
            with self._changed:
                self._changed.wait(min(SECONDS_BETWEEN_BEATS, max(begun + self._timeouts.start - now, 0.01)))

    def begin(self, kind: str, sess: SharedSession) -> None:
        """Report that a run of `sess` begins that waits for other processes.

        Args:
            kind: one of `KINDS`. Runs of each kind are counted.
            sess: the session to abort if a process is missing.

        Raises:
            PeerError: if a process is already known to be missing.
        """
        if self.failure is not None:
            raise self.failure
        self._counts[kind] += 1
        self._wait = Wait(kind, self._counts[kind], time.monotonic(), sess.abort)

    def end(self) -> None:
        """Report that the run has ended or failed."""
        self._wait = None

    def take_back(self) -> None:
        """Report that the run did nothing, so it is not counted."""
        if self._wait is not None:
            self._counts[self._wait.kind] -= 1
            self._wait = None

    @contextmanager
    def waiting(self, kind: str, sess: SharedSession) -> Iterator[None]:
        """Within the context, a run waits for other processes; see `begin` and `explained`."""
        self.begin(kind, sess)
        try:
            with self.explained():
                yield
        finally:
            self.end()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Within the context, a run that fails because of another process raises the `PeerError` that names it."""
        try:
            yield
        except tf.errors.OpError as error:
            reason = self.explain(error)
            if reason is None:
                raise
            raise reason from error

    def guard(self, sess: SharedSession) -> None:
        """Also abort `sess` once another process has failed or died, even while this one does not wait."""
        self._background = Wait("step", 0, time.monotonic(), sess.abort)

    def explain(self, error: BaseException) -> PeerError | None:
        """Return the error that names the process that caused the failure of a run; None if no other process did.

        Args:
            error: the error of the run.
        """
        waiting, self._wait = self._wait, None
        if not isinstance(error, tf.errors.OpError):
            return None
        if self.failure is not None:
            return self.failure
        text = str(error)
        if not isinstance(error, _CONNECTION_ERRORS) and not any(sign in text for sign in _FROM_ELSEWHERE):
            return None
        reasons = self._find_out(waiting)
        if not reasons:
            named = sorted({(job, int(index)) for job, index in _REMOTE.findall(text)} - {(WORKER, self._cluster.rank)})
            if not named and not isinstance(error, _CONNECTION_ERRORS):
                return None
            names = ", ".join(self._cluster.name_of(*key) for key in named) or "another process"
            reasons = [f"the connection to {names} has failed"]
        self.failure = PeerError("; ".join(reasons))
        return self.failure

    def leave(self, failure: BaseException | None) -> None:
        """Tell the others that this worker leaves the training.

        If they read its state from its own server, wait until all of them have left or are gone.

        Args:
            failure: the error that ends the training, if any. Only an `Exception` is a failure; a signal is not.
        """
        line = ""
        if isinstance(failure, Exception):
            line = f"{type(failure).__name__}: {failure}".strip().partition("\n")[0][:1000]
        with self._changed:
            # A failure that another process caused is not this worker's own.
            is_own = not isinstance(failure, PeerError)
            self._state = attrs.evolve(self._state, phase=LEFT, failure=line, is_own_failure=is_own)
        if not self._cluster.ps:
            self._beat_now[WORKER, self._cluster.rank].set()
            self._wait_for_others(10.0 if line or self.failure else self._timeouts.heartbeat)
        self._is_stopped.set()
        for event in self._beat_now.values():
            event.set()
        # If the process ends while TensorFlow returns to one of the threads, it is aborted.
        end = time.monotonic() + min(self._timeouts.heartbeat, SECONDS_TO_ANSWER) + _SECONDS_TO_CLOSE
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))

    def _wait_for_others(self, seconds: float) -> None:
        seconds = min(seconds, self._timeouts.heartbeat)
        end = time.monotonic() + seconds
        while staying := self.members.staying():
            now = time.monotonic()
            if now >= end:
                logger.warning("left without %s, which did not leave within %g s", names_of(staying), seconds)
                return
            with self._changed:
                self._changed.wait(min(0.2, end - now))

    # Called in the threads.

    def _keep_beating(self, board: Board) -> None:
        beat_now, has_come, is_last = self._beat_now[board.key], False, False
        while not is_last:
            # After `leave`, the last state is written to the boards that show it.
            is_last = self._is_stopped.is_set()
            if is_last and (not board.is_written or board.key in [each.key for each in self.members.gone()]):
                break
            try:
                states = board.exchange(self._next_state(), self.members.patience(board.key))
            except (OSError, tf.errors.OpError) as error:
                self.members.doubt(board.key, is_replaced=isinstance(error, tf.errors.AbortedError))
                if is_last and has_come and self.failure is None:
                    name = self._cluster.name_of(*board.key)
                    logger.warning("could not tell %s that this worker leaves: %s", name, error)
            else:
                if board.is_written or states:
                    has_come = True
                    self.members.hear(board.key)
                self.members.note(states)
            with self._changed:
                self._changed.notify_all()
            beat_now.wait(SECONDS_BETWEEN_BEATS if has_come else SECONDS_BETWEEN_BEATS / 5)
            beat_now.clear()
        board.close()

    def _next_state(self) -> WorkerState:
        with self._changed:
            self._state = attrs.evolve(self._state, beat=self._state.beat + 1, counts=dict(self._counts))
            return self._state

    def _watch(self) -> None:
        """Abort runs that wait for processes that will not come."""
        while not self._is_stopped.is_set():
            waiting = self._wait or self._background
            if waiting is not None and self.failure is None:
                self._look_after(waiting)
            elif waiting is not None:  # A run that began later would also wait for dead processes.
                self._hang_up(waiting)
            with self._changed:
                self._changed.wait(SECONDS_BETWEEN_BEATS)

    def _look_after(self, wait: Wait) -> None:
        reasons = self.members.to_blame(wait) or self.members.in_vain(wait, self._counts)
        now = time.monotonic()
        if reasons:
            if wait is not (self._wait or self._background):
                return
            self.failure = PeerError("; ".join(reasons))
            logger.error("%s", self.failure)
            # Aborting a session would also wait for a process that does not answer.
            if not self._hang_up(wait):
                wait.abort()
        elif now - max(wait.since, self._reported_at) > self._timeouts.late_warning:
            late = [
                f"{each.name}, which is at {wait.kind} {each.count(wait.kind)}" for each in self.members.behind(wait)
            ]
            if late:
                self._reported_at = now
                logger.warning("waiting in %s since %.0f s for %s", wait, now - wait.since, ", ".join(late))

    def _hang_up(self, wait: Wait) -> bool:
        """End connections to dead processes that a wait depends on; return whether there are such processes."""
        hosts = self._cluster.ps or (self._cluster.workers[:1] if wait.kind == "gather" else ())
        gone = {each.address for each in self.members.gone()} & set(hosts)
        if gone:
            self._connections.hang_up(gone)
        return bool(gone)

    def _find_out(self, wait: Wait | None) -> list[str]:
        """Ask all other processes for their states, and return which of them caused a failure that just happened."""
        happened = time.monotonic()
        end = happened + min(_SECONDS_TO_FIND_OUT, self._timeouts.heartbeat)
        while (now := time.monotonic()) < end:
            if now > happened + SECONDS_BETWEEN_BEATS:
                # The threads that would check this may themselves wait for the answer of a dead process.
                for each in self.members.unheard_since(happened):
                    self.members.doubt(each.key)
            reasons = self.members.to_blame(wait)
            if reasons:
                return reasons
            for event in self._beat_now.values():
                event.set()
            with self._changed:
                self._changed.wait(min(0.2, end - now))
        return self.members.silences(happened)
