"""Team of workers that deliver the shares of one flow, in turn."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import attrs

from tpk.dataflow.parallel.transport.wire import END_OF_PASS

MemberT = TypeVar("MemberT", bound="Member")


@attrs.define
class WorkerState:
    """Where a worker's flow stands.

    Attributes:
        position: what it told last of its flow and random numbers; None at the very beginning.
        skips: how many datapoints and ends of passes follow from there; then, for each further number, the pass was
            given up, and so many followed.
    """

    position: Any = None
    skips: list[int] = attrs.field(factory=lambda: [0])

    def after(self, items: int) -> WorkerState:
        """Return where it stands after so many more datapoints and ends of passes."""
        *before, last = self.skips
        return WorkerState(self.position, [*before, last + items])


@attrs.define
class TeamState:
    """Where a team stands: where each worker does, whose turn it is, and who has no more in this pass."""

    workers: list[WorkerState]
    turn: int
    over: list[bool]
    in_pass: bool

    @classmethod
    def of(cls, count: int) -> TeamState:
        """Return the state of `count` workers that have not begun."""
        return cls([WorkerState() for _ in range(count)], 0, [False] * count, False)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> TeamState:
        """Return what `state_dict` was made of."""
        workers = [WorkerState(worker["position"], list(worker["skips"])) for worker in state["workers"]]
        return cls(workers, state["turn"], list(state["over"]), state["in_pass"])

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return attrs.asdict(self)

    def give_up_pass(self) -> None:
        """Let each worker begin the next pass; those that are through with this one need not leave it."""
        for worker, is_over in zip(self.workers, self.over, strict=True):
            if not is_over:
                worker.skips.append(0)
        self.turn, self.over, self.in_pass = 0, [False] * len(self.workers), False


class Member(Protocol):
    """A worker of a team: a process or a thread.

    Attributes:
        owner: the process that started it. A fork of that one has it, too, and must leave it alone.
    """

    owner: int

    def receive(self) -> Any:
        """Return the next datapoint, or `END_OF_PASS`."""

    def progress(self) -> tuple[Any, int]:
        """Return the last state that it told, or None, and how many datapoints and ends of passes it gave since."""


class Team(Generic[MemberT]):
    """Takes datapoints of workers in turn.

    Args:
        members: each delivers datapoints and ends of passes.
        state: where they were when they began.

    Attributes:
        members: the workers.
        in_pass: whether a pass has begun, and is not over.
    """

    def __init__(self, members: Sequence[MemberT], state: TeamState) -> None:
        self.members = members
        self.in_pass = state.in_pass
        self._began_at = state.workers
        self._turn = state.turn
        self._over = state.over

    @property
    def is_own(self) -> bool:
        """Whether this process has started the workers, and is not a fork of the one that has."""
        return all(member.owner == os.getpid() for member in self.members)

    def __iter__(self) -> Generator[Any, None, None]:
        """Deliver the rest of the pass."""
        members, over = self.members, self._over
        count = len(members)
        self.in_pass = True
        while not all(over):
            turn = self._turn
            if not over[turn]:
                item = members[turn].receive()
                if item is END_OF_PASS:
                    over[turn] = True
                else:
                    self._turn = (turn + 1) % count
                    yield item
                    item = None  # or its memory would be in use until the next one is here
                    continue
            self._turn = (turn + 1) % count
        self._begin_anew()

    def end_pass(self) -> bool:
        """Take the ends of the pass from all workers; return whether nothing else came."""
        for number, member in enumerate(self.members):
            if not self._over[number]:
                if member.receive() is not END_OF_PASS:
                    return False
                self._over[number] = True
        self._begin_anew()
        return True

    def _begin_anew(self) -> None:
        self._turn, self._over, self.in_pass = 0, [False] * len(self.members), False

    def state_dict(self) -> dict[str, Any]:
        """Return where the team stands, as plain data."""
        workers = [self._worker_state(*each) for each in zip(self.members, self._began_at, strict=True)]
        return TeamState(workers, self._turn, list(self._over), self.in_pass).state_dict()

    def _worker_state(self, member: MemberT, began_at: WorkerState) -> WorkerState:
        position, items = member.progress()
        return began_at.after(items) if position is None else WorkerState(position, [items])
