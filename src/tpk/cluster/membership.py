"""What is known of workers from the signs that they give."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

import attrs

from tpk.cluster.connections import is_listening
from tpk.cluster.spec import WORKER, Cluster

ALIVE, ENDED, LEFT, FAILED = "alive", "ended", "left", "failed"

_HERE = (ALIVE, ENDED)


@attrs.frozen
class Sign:
    """What a worker tells of itself.

    Attributes:
        state: ``"alive"``; ``"ended"`` if it lives, but makes no more steps; ``"left"`` in good order; or ``"failed"``,
            and left.
        count: how many signs it has given; so no two of them are alike.
        step: how many steps it has begun.
        failure: the error by which it has failed.
        is_consequence: whether that is the failure of another process.
    """

    state: str
    count: int
    step: int = 0
    failure: str = ""
    is_consequence: bool = False

    def encode(self) -> bytes:
        """Return it as bytes."""
        return json.dumps(attrs.astuple(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Sign | None:
        """Return the sign that `encode` made `data` of; None if there is none."""
        return cls(*json.loads(data)) if data else None


class Attendance:
    """What is known of the workers of a training, from their signs.

    Args:
        cluster: the processes of the training.
        timeout: after how many seconds without a new sign a worker counts as dead.
        silence: after how many seconds it counts as dead if nothing listens at its address, either.
        clock: returns the time in seconds.
    """

    def __init__(
        self, cluster: Cluster, timeout: float, silence: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._silence = silence
        self._clock = clock
        self._signs: list[Sign | None] = [None] * cluster.world_size
        self._seen_at = [clock()] * cluster.world_size

    def note(self, signs: Sequence[bytes]) -> None:
        """Take note of the signs that workers have given last, by rank; empty of one that has given none."""
        for rank, sign in enumerate(map(Sign.decode, signs)):
            if sign != self._signs[rank]:
                self._signs[rank], self._seen_at[rank] = sign, self._clock()

    @property
    def absent(self) -> list[str]:
        """The workers that have not come yet, as messages call them."""
        return [self._name(rank) for rank, sign in enumerate(self._signs) if sign is None]

    def are_gone(self) -> bool:
        """Whether no worker is here any more: those that have come have left, failed, or died."""
        return all(
            sign is None or sign.state not in _HERE or self._death(rank) is not None
            for rank, sign in enumerate(self._signs)
        )

    def has_left(self, rank: int) -> bool:
        """Whether a worker has left in good order."""
        sign = self._signs[rank]
        return sign is not None and sign.state == LEFT

    def behind(self, step: int) -> list[str]:
        """Return which workers have begun fewer steps than `step`, and how many."""
        return self._who_are((ALIVE,), step)

    def ended_before(self, step: int) -> list[str]:
        """Return which workers make no more steps, in good order, with fewer than `step`, and how many."""
        return self._who_are((ENDED, LEFT), step)

    def _who_are(self, states: Sequence[str], step: int) -> list[str]:
        return [
            f"{self._name(rank)}, at step {sign.step}"
            for rank, sign in enumerate(self._signs)
            if sign is not None and sign.state in states and sign.step < step
        ]

    def failures(self) -> list[str]:
        """Return which workers have failed or died; those that are themselves to blame, if any are."""
        own: list[str] = []
        consequences: list[str] = []
        for rank, sign in enumerate(self._signs):
            death = self._death(rank)
            if death is not None:
                own.append(f"{self._name(rank)} {death}")
            elif sign is not None and sign.state == FAILED:
                (consequences if sign.is_consequence else own).append(f"{self._name(rank)} has failed: {sign.failure}")
        return own or consequences

    def _death(self, rank: int) -> str | None:
        """Return why a worker counts as dead, or None if it does not."""
        sign, silence = self._signs[rank], self._clock() - self._seen_at[rank]
        if sign is None or sign.state not in _HERE or silence < min(self._silence, self._timeout):
            return None
        if not is_listening(self._cluster.workers[rank]):
            return "has died: nothing listens at its address any more"
        return f"has given no sign of life for {silence:.0f} s" if silence > self._timeout else None

    def _name(self, rank: int) -> str:
        return self._cluster.name_of(WORKER, rank)
