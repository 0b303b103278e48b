"""Base of the flows that run whole flows in workers, which deliver shares of them in turn."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import attrs
import numpy as np

from tpk.dataflow.base import ProxyDataFlow, RNGDataFlow, allocate_with, flow_length, reset_state, shard
from tpk.dataflow.memory import ArraySpec
from tpk.dataflow.parallel.seeding import GlobalRandom
from tpk.dataflow.parallel.team import MemberT, Team, TeamState, WorkerState
from tpk.dataflow.parallel.transport.wire import END_OF_PASS
from tpk.dataflow.position import Position
from tpk.dataflow.undivided import tell_of_undivided
from tpk.errors import InputError

STATE_EVERY, STATE_SECONDS = 16, 0.005
"""How many datapoints a worker delivers, and for how many seconds, between two reports of where its flow stands; a
resumed one skips the rest. A report takes longer than a small datapoint does."""


RunnerT = TypeVar("RunnerT", bound="FlowRunner[Any]")


class FlowRunner(ProxyDataFlow, RNGDataFlow, Generic[MemberT]):
    """Base of the runners: has a team of workers, which lives from pass to pass.

    Args:
        flow: any iterable of datapoints.
        num_workers: how many workers divide it.
        seed: see `RNGDataFlow`.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], num_workers: int, seed: int | None) -> None:
        ProxyDataFlow.__init__(self, flow)
        RNGDataFlow.__init__(self, seed)
        self.num_workers = num_workers
        self._team: Team[MemberT] | None = None
        self._state: Mapping[str, Any] | None = None
        self._is_loaded = False
        self._has_told_of_undivided = False

    def reset_state(self) -> None:
        """Do nothing here: the workers make the flow ready."""

    def __iter__(self) -> Iterator[Any]:
        if self._team is not None and not self._team.is_own:
            self.close()
        if not self._is_loaded:
            self.break_off()
        if self._team is None:
            self._team = self._new_team()
        return self._deliver(self._team)

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even if a pass is under way; then new workers are started."""
        if self._team is not None and self._team.in_pass:
            self.close()
        if self._state is not None:
            state = TeamState.from_dict(self._state)
            if state.in_pass:
                state.give_up_pass()
            self._state, self._is_loaded = state.state_dict(), False

    def close(self) -> None:
        """End the workers. The next iteration starts new ones, which go on with the next pass."""
        if self._team is not None:
            team, self._team = self._team, None
            self._state = team.state_dict()
            if team.is_own:
                self._stop(team)

    def with_sources(self: RunnerT, sources: Sequence[Iterable[Any]]) -> RunnerT:
        """Return the same, with workers of its own, on top of another flow."""
        runner = super().with_sources(sources)
        runner._state, runner._is_loaded = None, False
        return runner

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration under way stands: whose datapoint is next, and how far each worker's flow is."""
        if self._team is not None:
            return self._team.state_dict()
        return TeamState.of(self.num_workers).state_dict() if self._state is None else dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there.

        Raises:
            InputError: it is the state of another number of workers.
        """
        if len(state["workers"]) != self.num_workers:
            raise InputError(
                f"the position is one of {len(state['workers'])} workers, and this {type(self).__name__} has "
                f"{self.num_workers}, which divide the data otherwise. Resume with {len(state['workers'])} of them."
            )
        self.close()
        self._state, self._is_loaded = state, True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_team": None}

    @abstractmethod
    def _start(self, state: TeamState, shares: Sequence[Iterable[Any]]) -> Team[MemberT]:
        """Start the workers where `state` says, each with its share of the flow."""

    @abstractmethod
    def _stop(self, team: Team[MemberT]) -> None:
        """End the workers."""

    def _share(self, index: int) -> Iterable[Any]:
        return shard(self.flow, index, self.num_workers)

    def _new_team(self) -> Team[MemberT]:
        state = TeamState.of(self.num_workers) if self._state is None else TeamState.from_dict(self._state)
        self._state, self._is_loaded = None, False
        shares = [self._share(index) for index in range(self.num_workers)]
        if self.num_workers > 1 and not self._has_told_of_undivided:
            self._has_told_of_undivided = True
            tell_of_undivided(shares[0], type(self).__name__, f"its {self.num_workers} workers", logging.WARNING)
        return self._start(state, shares)

    def _deliver(self, team: Team[MemberT]) -> Generator[Any, None, None]:
        size, delivered = None if team.in_pass else flow_length(self), 0
        finished = False
        try:
            for datapoint in team:
                delivered += 1
                yield datapoint
                datapoint = None  # or its memory would be in use until the next one is here
                if self._team is not team:
                    break
            else:
                finished = True
        except GeneratorExit:
            # Whoever knows the length may have asked for no more than that.
            finished = delivered == size and self._team is team and team.end_pass()
            raise
        except Exception as error:
            if self._team is not team:  # Another thread has ended the workers while this one waited for them.
                raise iteration_is_over(self) from error
            raise
        finally:
            if not finished and self._team is team:
                self.close()
        if not finished and delivered != size:
            raise iteration_is_over(self)


class DatapointSender(Protocol):
    """Where the work of a worker goes."""

    def allocate(self, arrays: Sequence[ArraySpec]) -> list[np.ndarray[Any, Any]]:
        """Make the arrays of a datapoint that is to be sent."""

    def send(self, datapoint: Any) -> None:
        """Send a datapoint; wait if the receiver is too far behind."""

    def send_end(self) -> None:
        """Tell that the pass is over."""

    def send_state(self, state: Any) -> None:
        """Tell where the flow stands now."""


@attrs.frozen
class RunFlow:
    """The work of a worker: delivers a share of the flow, pass after pass."""

    flow: Iterable[Any]
    start: WorkerState
    random: GlobalRandom | None = None

    def __call__(self, sender: DatapointSender, tasks: object = None) -> None:
        """Do it; ends only by an exception, such as that nobody receives any more."""
        reset_state(self.flow)
        allocate_with(self.flow, sender.allocate)
        position = Position(self.flow)
        datapoints = self._go_on(position)
        delivered, due = 0, 0.0
        while True:
            for datapoint in datapoints:
                sender.send(datapoint)
                datapoint = None  # so that its memory may serve for the next one
                delivered += 1
                if delivered % STATE_EVERY == 0 and time.monotonic() >= due:
                    sender.send_state(self._state(position))
                    due = time.monotonic() + STATE_SECONDS
            sender.send_end()
            sender.send_state(self._state(position))
            datapoints = iter(position)

    def _state(self, position: Position) -> dict[str, Any]:
        drawn = None if self.random is None else self.random.state()
        return {"flow": position.state_dict(), **({} if drawn is None else {"random": drawn})}

    def _go_on(self, position: Position) -> Generator[Any, None, None]:
        """Return the iterator of the pass in which the flow is at the start."""
        if self.random is not None:
            self.random.begin()
        told = self.start.position
        if told is not None:
            position.load_state_dict(told["flow"])
        datapoints = iter(position)
        if told is not None and self.random is not None:
            self.random.restore(told.get("random"))
        *given_up, last = self.start.skips
        for items in given_up:
            _skip(position, datapoints, items).close()
            datapoints = iter(position)
        return _skip(position, datapoints, last)


def _skip(position: Position, datapoints: Generator[Any, None, None], items: int) -> Generator[Any, None, None]:
    """Return the iterator of the pass in which the flow is after so many datapoints and ends of passes."""
    for _ in range(items):
        if next(datapoints, END_OF_PASS) is END_OF_PASS:
            datapoints = iter(position)
    return datapoints


def iteration_is_over(flow: object) -> InputError:
    """Return the error of an iteration whose workers were ended by the next one, or by `close`."""
    kind = type(flow).__name__
    return InputError(
        f"this iteration of {kind} is over: the flow was iterated anew, or closed. Its workers serve one consumer at "
        f"a time; make another {kind} for a second one, such as a validation."
    )
