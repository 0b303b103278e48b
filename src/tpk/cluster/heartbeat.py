"""The other workers of a training: whether they have come, still answer, are late, or have left."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Any

import attrs
import tensorflow as tf

from tpk.cluster.connections import Connections
from tpk.cluster.sessions import abort, close_aborted
from tpk.cluster.spec import WORKER, Cluster
from tpk.cluster.timeouts import Patience
from tpk.cluster.worker_state import LEFT, StateCell, WorkerState, digest
from tpk.errors import MismatchError, PeerError

logger = logging.getLogger(__name__)

KINDS = ("step", "exchange", "broadcast", "synchronization")
"""For what a worker waits for the others."""

SECONDS_BETWEEN_LOOKS = 1.0

_REMOTE = re.compile(r"/job:worker/replica:0/task:(\d+)")
_FROM_ELSEWHERE = ("remote target", "Collective ops is aborted by", "Session::Close()", "Operation timed out")
_CONNECTION_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)


@attrs.define
class _Peer:
    """What is known of another worker."""

    rank: int
    name: str
    state: WorkerState | None = None
    answered: float = 0.0
    asked: float = 0.0
    gone: str = ""
    look: threading.Event = attrs.field(factory=threading.Event)


@attrs.frozen
class _Wait:
    """That this worker waits for the others, since when, and by a run of which session."""

    kind: str
    number: int
    since: float
    sess: Any


class Peers:
    """The other workers, each watched by a thread of its own.

    While this worker waits for others, by a run in which they take part (see `begin`), that run is aborted if one of
    them is gone, or has left, or does not come for too long. One that is late is reported.

    Args:
        cluster: who is in the cluster, and who this process is.
        target: the server of this process.
        training: the how manyeth training of the process this is.
        patience: how long to wait for what.
    """

    def __init__(self, cluster: Cluster, target: str, training: int, patience: Patience) -> None:
        self._cluster, self._target, self._patience = cluster, target, patience
        self._connections = Connections(cluster.workers[:1])
        self._state = WorkerState(uuid.uuid4().hex, digest(cluster), training)
        self._training = training
        others = [rank for rank in range(cluster.world_size) if rank != cluster.rank]
        self._peers = {rank: _Peer(rank, cluster.name_of(WORKER, rank)) for rank in others}
        self._counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._wait: _Wait | None = None
        self._aborted: Any = None
        self._failure: PeerError | None = None
        self._reported = 0.0
        self._changed = threading.Condition()
        self._look = threading.Event()
        self._is_stopped = threading.Event()
        self._own_cell = StateCell(cluster, cluster.rank, target, patience.answer)
        self._own_cell.write(self._state)
        self._threads = [
            threading.Thread(target=self._watch_peer, name=f"tpk-peer-{rank}", args=(peer,), daemon=True)
            for rank, peer in self._peers.items()
        ]
        self._threads.append(threading.Thread(target=self._watch_over, name="tpk-peers", daemon=True))
        for thread in self._threads:
            thread.start()

    def meet(self) -> None:
        """Wait until all others are there.

        Raises:
            PeerError: if some have not come in time, or are gone again.
            MismatchError: if one is there as part of another cluster.
        """
        begun = time.monotonic()
        report = begun + min(5.0, self._patience.late)
        while True:
            missing = [peer for peer in self._peers.values() if not self._is_there(peer)]
            now = time.monotonic()
            self._check_met(missing, now - begun)
            if not missing:
                return
            if now >= report:
                logger.info("waiting for %s to start, since %d s", _names(missing), now - begun)
                report = now + self._patience.late
            with self._changed:
                self._changed.wait(min(SECONDS_BETWEEN_LOOKS, max(begun + self._patience.start - now, 0.01)))

    def begin(self, kind: str, sess: Any) -> None:
        """Say that a run of `sess` begins which needs the others: the next one of its kind, see `KINDS`.

        Raises:
            PeerError: if it is known already that one of them is missing.
        """
        if self._failure is not None:
            raise self._failure
        self._counts[kind] += 1
        self._wait = _Wait(kind, self._counts[kind], time.monotonic(), sess)

    def end(self) -> None:
        """Say that it is done, or has failed."""
        with self._changed:
            self._wait = None
            aborted, self._aborted = self._aborted, None
        if aborted is not None:
            close_aborted(aborted)

    def explain(self, error: BaseException) -> PeerError | None:
        """Return what is to blame for the failure of a run: another worker; or None, if it is none of them.

        Args:
            error: that of the run.
        """
        self.end()
        if self._failure is not None:
            return self._failure
        text = str(error)
        if not isinstance(error, _CONNECTION_ERRORS) and not any(sign in text for sign in _FROM_ELSEWHERE):
            return None
        guilty = self._find_guilty()
        if not guilty:
            named = sorted({int(rank) for rank in _REMOTE.findall(text)} & set(self._peers))
            if not named and not isinstance(error, _CONNECTION_ERRORS):
                return None
            names = ", ".join(self._peers[rank].name for rank in named) or "another process"
            guilty = [f"the connection to {names} has failed"]
        self._failure = PeerError("; ".join(guilty))
        return self._failure

    def note_failure(self, failure: BaseException) -> None:
        """Let the others know by what error the training of this worker ends."""
        line = f"{type(failure).__name__}: {failure}".strip().partition("\n")[0][:500]
        self._state = attrs.evolve(self._state, failure=line, is_own_failure=not isinstance(failure, PeerError))

    def leave(self) -> None:
        """Tell the others that this worker takes no part any more; wait until all have left, or are gone."""
        self._state = attrs.evolve(self._state, phase=LEFT)
        self._look.set()
        patience = min(10.0, self._patience.answer) if self._state.failure or self._failure else self._patience.answer
        end = time.monotonic() + patience
        while (now := time.monotonic()) < end:
            staying = [peer for peer in self._peers.values() if not self._is_out(peer)]
            if not staying:
                break
            with self._changed:
                self._changed.wait(min(0.2, end - now))
        else:
            logger.warning("left without %s, which did not leave within %g s", _names(staying), patience)
        self._is_stopped.set()
        self._look.set()
        for peer in self._peers.values():
            peer.look.set()
        end = time.monotonic() + 2 * SECONDS_BETWEEN_LOOKS
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))

    # What the threads do.

    def _watch_peer(self, peer: _Peer) -> None:
        cell: StateCell | None = None
        while not self._is_stopped.is_set():
            asked = time.monotonic()
            try:
                if cell is None:
                    self._connect(peer.rank)
                    cell = StateCell(
                        self._cluster, peer.rank, self._target, min(self._patience.answer, 10 * SECONDS_BETWEEN_LOOKS)
                    )
                self._take(peer, cell.read())
            except tf.errors.FailedPreconditionError:
                pass
            except (OSError, tf.errors.OpError) as error:
                if peer.state is not None:
                    self._judge(peer, error)
                elif cell is not None:
                    cell.close()
                    cell = None
            peer.asked = asked
            with self._changed:
                self._changed.notify_all()
            self._look.set()
            peer.look.wait(SECONDS_BETWEEN_LOOKS if peer.state is not None else SECONDS_BETWEEN_LOOKS / 5)
            peer.look.clear()
        if cell is not None:
            cell.close()

    def _connect(self, rank: int) -> None:
        """Raise an OSError if nobody listens at the worker's address: TensorFlow would wait for it without an end."""
        host, _, port = self._cluster.workers[rank].rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=self._patience.answer).close()

    def _take(self, peer: _Peer, state: WorkerState) -> None:
        before = peer.state
        if before is not None and before.incarnation != state.incarnation and not before.has_left(self._training):
            peer.gone = "is gone: another process has taken its place" if before.training == self._training else ""
        peer.state, peer.answered = state, time.monotonic()

    def _judge(self, peer: _Peer, error: Exception) -> None:
        """Find out whether a worker that was there and now does not answer is gone."""
        try:
            self._connect(peer.rank)
        except ConnectionRefusedError:
            peer.gone = "is gone: nothing listens at its address any more"
        except OSError:
            pass
        if isinstance(error, tf.errors.AbortedError):
            peer.gone = "is gone: another process has taken its place"
        silent = time.monotonic() - peer.answered
        if not peer.gone and silent > self._patience.answer:
            peer.gone = f"has not answered for {silent:.0f} s: its process or host is dead, or the network is cut"

    def _watch_over(self) -> None:
        """Publish the state of this worker, and abort what waits in vain."""
        published: WorkerState | None = None
        while True:
            state = attrs.evolve(self._state, counts=dict(self._counts))
            if state != published:
                try:
                    self._own_cell.write(state)
                    published = state
                except tf.errors.OpError as error:
                    logger.warning("could not tell the others the state of this process: %s", error.message)
            if self._is_stopped.is_set():
                self._own_cell.close()
                return
            wait = self._wait
            if wait is not None and self._failure is None:
                self._look_after(wait, time.monotonic())
            self._look.wait(SECONDS_BETWEEN_LOOKS)
            self._look.clear()

    def _look_after(self, wait: _Wait, now: float) -> None:
        absent = [peer for peer in self._peers.values() if _count(peer, wait.kind) < wait.number]
        waited = now - wait.since
        guilty = self._guilty(wait)
        if not guilty and absent and waited > self._patience.late:
            guilty = self._elsewhere(wait)
        if not guilty and absent and waited > self._patience.wait:
            guilty = [
                f"{peer.name} lives, but has not come for {waited:.0f} s to {_point(wait)}, where this process waits"
                for peer in absent
            ]
        if guilty:
            with self._changed:
                if self._wait is not wait:
                    return
                self._failure = PeerError("; ".join(guilty))
                # A session that is closed would wait, too, for a chief that does not answer.
                is_cut_off = wait.kind == "exchange" and 0 in self._peers and bool(self._peers[0].gone)
                self._aborted = None if is_cut_off else wait.sess
            if is_cut_off:
                self._connections.hang_up([self._cluster.workers[0]])
            else:
                abort(wait.sess)
        elif absent and waited > self._patience.late and now - self._reported > self._patience.late:
            self._reported = now
            late = ", ".join(f"{peer.name}, which is at {wait.kind} {_count(peer, wait.kind)}" for peer in absent)
            logger.warning("waiting in %s since %.0f s for %s", _point(wait), waited, late)

    # What is known of the others.

    def _is_there(self, peer: _Peer) -> bool:
        return peer.state is not None and peer.state.training >= self._training

    def _is_out(self, peer: _Peer) -> bool:
        if peer.gone or peer.state is None or peer.state.training < self._training:
            return True
        return peer.state.has_left(self._training)

    def _check_met(self, missing: list[_Peer], waited: float) -> None:
        for peer in self._peers.values():
            if peer.gone:
                raise PeerError(f"{peer.name} {peer.gone}. It had started already; its own output tells more.")
            if peer.state is not None and peer.state.cluster != self._state.cluster:
                raise MismatchError(
                    f"{peer.name} belongs to another cluster than this process, whose workers are "
                    f"{', '.join(self._cluster.workers)}. Give all processes the same list, in the same order."
                )
        if missing and waited > self._patience.start:
            behind = [peer.name for peer in missing if peer.state is not None]
            hint = f" {', '.join(behind)} has finished fewer trainings than this process." if behind else ""
            raise PeerError(
                f"{_names(missing)} did not start within {self._patience.start:g} s.{hint} See what became of it, and "
                "whether its address can be reached from here; start_timeout=<seconds> gives it longer."
            )

    def _guilty(self, wait: _Wait) -> list[str]:
        """Who can never come where this worker waits, in words; those that are themselves to blame, if any are."""
        own, others = [], []
        for peer in self._peers.values():
            state = peer.state
            if state is not None and state.has_left(self._training):
                if state.failure and state.is_own_failure:
                    own.append(f"{peer.name} has failed: {state.failure}")
                elif state.failure:
                    others.append(f"{peer.name} has ended its training since {state.failure.partition(': ')[2]}")
                elif _count(peer, wait.kind) < wait.number:
                    own.append(f"{peer.name} has ended its training, after {state.counts.get('step', 0)} steps")
            elif peer.gone:
                own.append(f"{peer.name} {peer.gone}")
        return own or others

    def _elsewhere(self, wait: _Wait) -> list[str]:
        """Which of the others wait for this worker at one point, while this one waits for them at another, in words."""
        found = []
        for peer in self._peers.values():
            # All wait for each other in the same order. So of two workers, one that is ahead in something is behind in
            # nothing, even if what is known of the other one is old.
            ahead = [f"{kind} {_count(peer, kind)}" for kind in KINDS if _count(peer, kind) > self._counts[kind]]
            if ahead and _count(peer, wait.kind) < wait.number:
                found.append(
                    f"{peer.name} is at another point of the program: it waits in {', '.join(ahead)}, and this process "
                    f"in {_point(wait)}. Maybe the data of one has ended earlier, or their callbacks differ"
                )
        return found

    def _find_guilty(self) -> list[str]:
        """Ask all others anew, and return who is to blame for a failure that has happened just now."""
        happened = time.monotonic()
        end = happened + min(5.0, self._patience.answer)
        nobody = _Wait("step", 0, happened, None)
        while (now := time.monotonic()) < end:
            guilty = self._guilty(nobody)
            if guilty:
                return guilty
            for peer in self._peers.values():
                peer.look.set()
            with self._changed:
                self._changed.wait(min(0.2, end - now))
        return [
            f"{peer.name} does not answer: its process or host is dead, or the network is cut"
            for peer in self._peers.values()
            if peer.answered < happened
        ]


def _count(peer: _Peer, kind: str) -> int:
    return 0 if peer.state is None else peer.state.counts.get(kind, 0)


def _names(peers: Iterable[_Peer]) -> str:
    return ", ".join(peer.name for peer in peers)


def _point(wait: _Wait) -> str:
    return f"{wait.kind} {wait.number}"
