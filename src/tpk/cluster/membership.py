"""Membership: what a process knows of the others of its training, and which of them is to blame when one is missing.

There is no TensorFlow here, no thread, and no network but the question whether something listens at an address.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

import attrs

from tpk.cluster.connections import is_refused
from tpk.cluster.spec import PS, WORKER, Cluster, Timeouts
from tpk.errors import MismatchError, PeerError

KINDS = ("step", "gather", "broadcast", "synchronization")
"""For what a worker waits for the others."""

TRAINING, LEFT = "training", "left"

SECONDS_BETWEEN_BEATS = 1.0
_BEATS_MISSED = 3
"""After so many of them it is asked whether a worker still listens at its address."""

Key = tuple[str, int]
"""The job of a process, and its index there."""


@attrs.frozen
class WorkerState:
    """The state that a worker reports to the others.

    Attributes:
        incarnation: differs between processes that have had one address.
        cluster: a digest of the addresses of all workers.
        training: which training in its process this is, from 1 on.
        beat: how many heartbeats it has had; so no two states of a worker that lives are alike.
        phase: ``"training"`` or ``"left"``.
        counts: how many waits of each of `KINDS` it has begun.
        failure: the error by which its training has ended.
        is_own_failure: whether that is no consequence of another process's.
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
        """Return it as bytes."""
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> WorkerState | None:
        """Return the state encoded in `data`; None if it is empty."""
        return cls(**json.loads(data)) if data else None

    def has_left(self, training: int) -> bool:
        """Whether the worker takes no part in this training any more."""
        return self.training > training or (self.training == training and self.phase == LEFT)

    def count(self, kind: str) -> int:
        """Return how many waits of a kind it has begun."""
        return self.counts.get(kind, 0)


@attrs.frozen
class Wait:
    """That this worker waits for the others.

    Attributes:
        kind: one of `KINDS`.
        number: how many waits of this kind it has begun; 0 if it waits for nobody, but needs all to live.
        since: when it began.
    """

    kind: str
    number: int
    since: float

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


@attrs.define(eq=False)
class Member:
    """What is known of another process.

    Attributes:
        key: its job and index.
        name: what messages call it.
        address: where it listens.
        state: what it has told last, if it is a worker.
        heard_at: when it gave the last sign of life; None before the first.
        gone: why it counts as dead, in words; empty if it does not.
    """

    key: Key
    name: str
    address: str
    state: WorkerState | None = None
    heard_at: float | None = None
    gone: str = ""

    def count(self, kind: str) -> int:
        """Return how many waits of a kind it has begun."""
        return 0 if self.state is None else self.state.count(kind)


class Membership:
    """The other processes of a training: who has come, who lives, who is late, who has left, who is to blame.

    Args:
        cluster: the processes, and which of them this one is. Parameter servers are watched by workers only.
        training: which training in this process this is.
        timeouts: how long others are waited for.
        clock: returns the time, in seconds.
        is_refused: tells of an address whether a host answers that nothing listens there.
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

    # What is noted of them.

    def hear(self, key: Key) -> None:
        """Take note that a process has given a sign of life."""
        if key in self._members:
            self._members[key].heard_at = self._clock()

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
                member.state, member.heard_at = state, self._clock()
        noted = [self._members[WORKER, rank] for rank in states if (WORKER, rank) in self._members]
        stale = [each for each in noted if self._silence(each) >= _BEATS_MISSED * SECONDS_BETWEEN_BEATS]
        if stale:  # One at a time, for the question may take a while.
            self.doubt(max(stale, key=self._silence).key)

    def doubt(self, key: Key, is_replaced: bool = False) -> None:
        """Find out whether a process that was there, and does not answer, is gone.

        Args:
            key: which one.
            is_replaced: whether another process answers in its place.
        """
        member = self._members.get(key)
        if member is None or member.heard_at is None or member.gone or self._has_left(member):
            return
        silence = self._clock() - member.heard_at
        if is_replaced:
            member.gone = "is gone: another process has taken its place"
        elif self._is_refused(member.address):
            member.gone = "is gone: nothing listens at its address any more"
        elif silence > self._timeouts.heartbeat:
            member.gone = (
                f"has given no sign of life for {silence:.0f} s: its process or host is dead, or the network is cut"
            )

    # What follows from that.

    def missing(self) -> list[Member]:
        """Return who has not come to this training yet; of parameter servers and workers, the servers come first."""
        absent = [each for each in self._members.values() if not self._is_there(each)]
        return [each for each in absent if each.key[0] == PS] or absent

    def check_start(self, waited: float) -> list[Member]:
        """Return who has not come yet, after so many seconds.

        Raises:
            PeerError: if the time to start is over, or one that had come is gone.
            MismatchError: if one is there as part of another cluster.
        """
        for each in self._members.values():
            if each.gone:
                raise PeerError(f"{each.name} {each.gone}. It had started already; its own output tells more.")
            if each.state is not None and each.state.cluster != self._digest:
                raise MismatchError(
                    f"{each.name} belongs to another cluster than this process, whose workers are "
                    f"{', '.join(self._cluster.workers)}. Give all processes the same list, in the same order."
                )
        missing = self.missing()
        if missing and waited > self._timeouts.start:
            behind = [each for each in missing if each.state is not None]
            hint = f" {names_of(behind)} has finished fewer trainings than this process." if behind else ""
            raise PeerError(
                f"{names_of(missing)} did not start within {self._timeouts.start:g} s.{hint} See what became of it, "
                "and whether its address can be reached from here; timeouts=tpk.Timeouts(start=<seconds>) gives it "
                "longer."
            )
        return missing

    def staying(self) -> list[Member]:
        """Return the workers that have come, and have neither left nor died."""
        workers = [each for each in self._members.values() if each.key[0] == WORKER]
        return [each for each in workers if self._is_there(each) and not each.gone and not self._has_left(each)]

    def gone(self) -> list[Member]:
        """Return who counts as dead."""
        return [each for each in self._members.values() if each.gone]

    def silent_since(self, moment: float) -> list[Member]:
        """Return who was there, has not left, and has given no sign of life since a moment."""
        here = [each for each in self._members.values() if each.heard_at is not None and not self._has_left(each)]
        return [each for each in here if each.heard_at is not None and each.heard_at < moment]

    def behind(self, wait: Wait) -> list[Member]:
        """Return the workers that have not come where this one waits."""
        return [
            each for each in self._members.values() if each.key[0] == WORKER and each.count(wait.kind) < wait.number
        ]

    def to_blame(self, wait: Wait | None = None) -> list[str]:
        """Return who can never come where this process waits, in words; those that are themselves to blame, if any are.

        Args:
            wait: where that is; None if it only needs all to be well.
        """
        servers = [f"{each.name} {each.gone}" for each in self.gone() if each.key[0] == PS]
        if servers:  # That nothing is heard of workers is not their fault, then.
            return servers
        own, consequences = [], []
        for each in self._members.values():
            state = each.state
            if state is not None and self._has_left(each):
                if state.failure and state.is_own_failure:
                    own.append(f"{each.name} has failed: {state.failure}")
                elif state.failure:
                    reason = state.failure.partition(": ")[2] or state.failure
                    consequences.append(f"{each.name} has ended its training since {reason}")
                elif wait is not None and each.count(wait.kind) < wait.number:
                    own.append(f"{each.name} has ended its training, after {state.count('step')} steps")
            elif each.gone:
                own.append(f"{each.name} {each.gone}")
        return own or consequences

    def in_vain(self, wait: Wait, counts: Mapping[str, int]) -> list[str]:
        """Return for whom this worker waits in vain though all live, in words.

        Args:
            wait: where it waits.
            counts: how many waits of each kind it has begun itself.
        """
        behind, waited = self.behind(wait), self._clock() - wait.since
        if waited <= self._timeouts.late_warning:
            # At once would be too soon: it may be about to leave that point, too.
            return []
        # All wait for each other in the same order. So of two workers, one that is ahead in something is behind in
        # nothing, even if what is known of the other one is old.
        ahead = {each.name: [kind for kind in KINDS if each.count(kind) > counts[kind]] for each in behind}
        elsewhere = [
            f"{each.name} is at another point of the program: it waits in "
            f"{', '.join(f'{kind} {each.count(kind)}' for kind in ahead[each.name])}, and this process in {wait}. "
            "Maybe the data of one has ended earlier, or their callbacks differ"
            for each in behind
            if ahead[each.name]
        ]
        if elsewhere or waited <= self._timeouts.barrier:
            return elsewhere
        return [
            f"{each.name} lives, but has not come for {waited:.0f} s to {wait}, where this process waits"
            for each in behind
        ]

    def _is_there(self, member: Member) -> bool:
        if member.key[0] == PS:
            return member.heard_at is not None
        return member.state is not None and member.state.training >= self._training

    def _has_left(self, member: Member) -> bool:
        return member.state is not None and member.state.has_left(self._training)

    def _silence(self, member: Member) -> float:
        """How long a process that is there has given no sign of life, in seconds."""
        if member.heard_at is None or member.gone or self._has_left(member):
            return 0.0
        return self._clock() - member.heard_at


def names_of(members: Sequence[Member]) -> str:
    """Return what messages call some processes."""
    return ", ".join(each.name for each in members)


def _digest(cluster: Cluster) -> str:
    return hashlib.sha256(json.dumps(cluster.workers).encode()).hexdigest()[:16]
