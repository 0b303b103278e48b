"""Membership: the known states of the processes of a training, and which process caused a failure.

It uses no TensorFlow, no threads, and the network only to check whether a process listens at its address.
"""

from __future__ import annotations

import hashlib
import json
import math
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

import attrs

from tpk.errors import MismatchError, PeerError
from tpk_distributed.cluster import PS, WORKER, Cluster
from tpk_distributed.connections import is_known, is_refused
from tpk_distributed.timeouts import Timeouts

KINDS = ("step", "gather", "broadcast", "synchronization")
"""The kinds of runs in which a worker waits for the others."""

TRAINING, LEFT = "training", "left"

SECONDS_BETWEEN_BEATS = 1.0
_BEATS_MISSED = 3
"""The number of missed heartbeats after which a worker's address is checked."""
_SECONDS_OF_INTERRUPTION, _SECONDS_SINCE = 5.0, 30.0
"""A longer silence between two signs of life counts as an interruption, and explains a failure for so long."""

Key = tuple[str, int]
"""The job of a process, and its index there."""


@attrs.frozen
class WorkerState:
    """The state that a worker reports to the others.

    Attributes:
        incarnation: an identifier of the process; another process at the same address has another one.
        cluster: a digest of the addresses of all workers.
        training: the number of the training in its process, from 1.
        beat: the number of heartbeats so far, so each state of a live worker is different.
        phase: ``"training"`` or ``"left"``.
        counts: the number of waits of each of `KINDS` that it has begun.
        failure: the error that ended its training; empty if there was none.
        is_own_failure: False if another process caused the failure.
    """

    incarnation: str
    cluster: str
    training: int
    beat: int = 0
    phase: str = TRAINING
    counts: dict[str, int] = attrs.field(factory=dict)
    failure: str = ""
    is_own_failure: bool = True

    @classmethod
    def first(cls, cluster: Cluster, training: int) -> WorkerState:
        """Return the first state of this process in a training."""
        return cls(uuid.uuid4().hex, _digest(cluster), training)

    def encode(self) -> bytes:
        """Return the state as bytes."""
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> WorkerState:
        """Return the state encoded in `data`."""
        return cls(**json.loads(data))

    def has_left(self, training: int) -> bool:
        """Whether the worker has left this training."""
        return self.training > training or (self.training == training and self.phase == LEFT)

    def count(self, kind: str) -> int:
        """Return the number of waits of a kind that it has begun."""
        return self.counts.get(kind, 0)


@attrs.frozen(eq=False)
class Wait:
    """A wait of this worker for the others.

    Attributes:
        kind: one of `KINDS`.
        number: the number of waits of this kind so far; 0 if it only needs the others to be alive.
        since: the time when it began.
        abort: ends the run that waits.
    """

    kind: str
    number: int
    since: float
    abort: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


@attrs.define(eq=False)
class Member:
    """The known state of another process.

    Attributes:
        key: its job and index.
        name: its name in messages.
        address: its address.
        state: its last reported state, if it is a worker.
        heard_at: the time of its last sign of life; None before the first.
        gone: the reason why it is considered dead; empty if it is not.
        interruption: the seconds of its last interruption, and the time when that was over.
    """

    key: Key
    name: str
    address: str
    state: WorkerState | None = None
    heard_at: float | None = None
    gone: str = ""
    interruption: tuple[float, float] = (0.0, -math.inf)

    def hear(self, now: float) -> None:
        """Record a sign of life."""
        if self.heard_at is not None and now - self.heard_at > _SECONDS_OF_INTERRUPTION:
            self.interruption = now - self.heard_at, now
        self.heard_at = now

    def count(self, kind: str) -> int:
        """Return the number of waits of a kind that it has begun."""
        return 0 if self.state is None else self.state.count(kind)


class Membership:
    """The other processes of a training: which have started, are alive, late, or gone, and which caused a failure.

    Args:
        cluster: the processes, and which of them this one is. Only workers monitor parameter servers.
        training: the number of the training in this process.
        timeouts: how long to wait for other processes.
        clock: returns the time in seconds.
        is_refused: takes an address, and returns whether a host answers that nothing listens there.
    """

    def __init__(
        self,
        cluster: Cluster,
        training: int,
        timeouts: Timeouts,
        clock: Callable[[], float] = time.monotonic,
        is_refused: Callable[[str], bool] = is_refused,
    ) -> None:
        self._cluster = cluster
        self._digest = _digest(cluster)
        self._training = training
        self._timeouts = timeouts
        self._clock = clock
        self._is_refused = is_refused
        jobs = (WORKER, PS) if cluster.job == WORKER else (WORKER,)
        keys = [(job, index) for job in jobs for index in range(len(cluster.jobs.get(job, ())))]
        self._members = {
            key: Member(key, cluster.name_of(*key), cluster.jobs[key[0]][key[1]])
            for key in keys
            if key != (cluster.job, cluster.index)
        }

    # Observations.

    def hear(self, key: Key) -> None:
        """Record a sign of life of a process."""
        if key in self._members:
            self._members[key].hear(self._clock())

    def note(self, states: Mapping[int, WorkerState]) -> None:
        """Record the states of workers, by rank. An unchanged state is not a sign of life."""
        for rank, state in states.items():
            member = self._members.get((WORKER, rank))
            if member is None:
                continue
            before = member.state
            is_another = before is not None and before.incarnation != state.incarnation
            if before is not None and is_another and not self._has_left(member):
                same = before.training == self._training
                member.gone = "is gone: another process has taken its place" if same else ""
            if before is None or is_another or state.beat > before.beat:
                member.state = state
                member.hear(self._clock())
        noted = [self._members[WORKER, rank] for rank in states if (WORKER, rank) in self._members]
        stale = [each for each in noted if self._silence(each) >= _BEATS_MISSED * SECONDS_BETWEEN_BEATS]
        if stale:  # One at a time, because the check may take a while.
            self.doubt(max(stale, key=self._silence).key)

    def doubt(self, key: Key, is_replaced: bool = False) -> None:
        """Check whether a process that does not answer any more is gone.

        Args:
            key: the job and index of the process.
            is_replaced: whether another process answers at its address.
        """
        member = self._members.get(key)
        if member is None or not (silence := self._silence(member)):
            return
        if is_replaced:
            member.gone = "is gone: another process has taken its place"
        elif self._is_refused(member.address):
            member.gone = "is gone: nothing listens at its address any more"
        elif silence > self._timeouts.heartbeat:
            member.gone = (
                f"has given no sign of life for {silence:.0f} s: its process or host is dead, or the network is cut"
            )

    def patience(self, key: Key) -> float:
        """Return for how many seconds to wait for an answer of a process: until it would be considered dead."""
        member = self._members.get(key)
        if member is None:
            return self._timeouts.heartbeat
        left = 0.0 if member.gone else self._timeouts.heartbeat - self._silence(member)
        return max(left, SECONDS_BETWEEN_BEATS)

    # Conclusions.

    def missing(self) -> list[Member]:
        """Return the processes that have not started; only the parameter servers if some of these are missing."""
        absent = [each for each in self._members.values() if not self._is_there(each)]
        return [each for each in absent if each.key[0] == PS] or absent

    def check_start(self, waited: float) -> list[Member]:
        """Return the processes that have not started yet; see `missing`.

        Args:
            waited: the number of seconds that this process has waited.

        Raises:
            PeerError: if the time to start is over, or a process that had started is gone.
            MismatchError: if a process belongs to another cluster.
        """
        for each in self._members.values():
            if each.gone:
                raise PeerError(f"{each.name} {each.gone}. It had started already; see its output.")
            if each.state is not None and each.state.cluster != self._digest:
                raise MismatchError(
                    f"{each.name} belongs to another cluster than this process, whose workers are "
                    f"{', '.join(self._cluster.workers)}. Give all processes the same list, in the same order."
                )
        missing = self.missing()
        if missing and waited > self._timeouts.start:
            behind = [each for each in missing if each.state is not None]
            hint = f" {names_of(behind)} has finished fewer trainings than this process." if behind else ""
            unknown = [each for each in missing if not is_known(each.address)]
            hint += f" The name of the host of {names_of(unknown)} is unknown here." if unknown else ""
            raise PeerError(
                f"{names_of(missing)} did not start within {self._timeouts.start:g} s.{hint} Check its output, and "
                "whether its address can be reached from here. To wait longer, write "
                "timeouts={'start': <seconds>}."
            )
        return missing

    def staying(self) -> list[Member]:
        """Return the workers that have started, and have neither left nor died."""
        workers = [each for each in self._members.values() if each.key[0] == WORKER]
        return [each for each in workers if self._is_there(each) and not each.gone and not self._has_left(each)]

    def gone(self) -> list[Member]:
        """Return the processes that are considered dead."""
        return [each for each in self._members.values() if each.gone]

    def unheard_since(self, moment: float) -> list[Member]:
        """Return the processes that are not known to be gone, and have given no sign of life since `moment`."""
        return [each for each in self._members.values() if self._silence(each) > self._clock() - moment]

    def silences(self, moment: float) -> list[str]:
        """Return which processes have not answered since `moment`, or if all have, which did not shortly before.

        Silent parameter servers precede workers.
        """
        now, own = self._clock(), socket.gethostname()
        here = [each for each in self._members.values() if each.heard_at is not None and not self._has_left(each)]
        unheard = self.unheard_since(moment)
        silent = [each for each in unheard if each.key[0] == PS] or unheard
        if silent:
            names = _names_unless_all(silent, here)
            seconds = max(map(self._silence, silent))
            ending = f"dead, or the network between there and {own} is cut"
            return [f"{names} did not answer for the last {seconds:.0f} s: {ending}"]
        back = [each for each in here if each.interruption[1] > moment - _SECONDS_SINCE]
        if back:
            names = _names_unless_all(back, here)
            seconds, over = max(each.interruption for each in back)
            ending = f"the network between there and {own} was interrupted"
            return [f"{names} did not answer for {seconds:.0f} s, until {now - over:.0f} s ago: {ending}"]
        return []

    def behind(self, wait: Wait) -> list[Member]:
        """Return the workers that have not reached the point where this one waits."""
        return [
            each for each in self._members.values() if each.key[0] == WORKER and each.count(wait.kind) < wait.number
        ]

    def to_blame(self, wait: Wait | None = None) -> list[str]:
        """Return the reasons why this process waits in vain, or must end.

        Processes that failed by themselves take precedence over those that failed because of others.

        Args:
            wait: the wait; None if this process only needs the others to be alive.
        """
        servers = [f"{each.name} {each.gone}" for each in self.gone() if each.key[0] == PS]
        if servers:  # Without the servers, the states of workers are unknown.
            return servers
        own, consequences = [], []
        for each in self._members.values():
            state = each.state
            if state is not None and self._has_left(each):
                if state.failure and state.is_own_failure:
                    own.append(f"{each.name} has failed: {state.failure}")
                elif state.failure:
                    reason = state.failure.partition(": ")[2] or state.failure
                    consequences.append(f"{each.name} has ended its training because {reason}")
                elif wait is not None and each.count(wait.kind) < wait.number:
                    own.append(f"{each.name} has ended its training, after {state.count('step')} steps")
            elif each.gone:
                own.append(f"{each.name} {each.gone}")
        return own or consequences

    def in_vain(self, wait: Wait, counts: Mapping[str, int]) -> list[str]:
        """Return the reasons why this worker waits in vain, although all processes are alive.

        Args:
            wait: the wait.
            counts: the number of waits of each kind that this worker has begun.
        """
        behind, waited = self.behind(wait), self._clock() - wait.since
        if waited <= self._timeouts.late_warning:
            # Too early to tell: the other worker may be about to leave that point.
            return []
        # All workers wait in the same order. So a worker that is ahead in one kind is behind in none, even if the known
        # state of the other one is old.
        ahead = {each.name: [kind for kind in KINDS if each.count(kind) > counts[kind]] for each in behind}
        elsewhere = [
            f"{each.name} is at another point of the program: it waits in "
            f"{', '.join(f'{kind} {each.count(kind)}' for kind in ahead[each.name])}, and this process in {wait}. "
            "Perhaps the data of one ended earlier, or their callbacks differ"
            for each in behind
            if ahead[each.name]
        ]
        if elsewhere or waited <= self._timeouts.barrier:
            return elsewhere
        return [
            f"{each.name} is alive, but has not reached {wait}, where this process has waited for {waited:.0f} s"
            for each in behind
        ]

    def _is_there(self, member: Member) -> bool:
        if member.key[0] == PS:
            return member.heard_at is not None
        return member.state is not None and member.state.training >= self._training

    def _has_left(self, member: Member) -> bool:
        return member.state is not None and member.state.has_left(self._training)

    def _silence(self, member: Member) -> float:
        """Return the number of seconds since a live process's last sign of life."""
        if member.heard_at is None or member.gone or self._has_left(member):
            return 0.0
        return self._clock() - member.heard_at


def names_of(members: Sequence[Member]) -> str:
    """Return the names of processes in messages."""
    return ", ".join(each.name for each in members)


def _names_unless_all(members: Sequence[Member], known: Sequence[Member]) -> str:
    return names_of(members) if len(members) < len(known) or len(known) == 1 else "all other processes"


def _digest(cluster: Cluster) -> str:
    return hashlib.sha256(json.dumps(cluster.workers).encode()).hexdigest()[:16]
