"""Flows that run a whole flow in workers: their base, and the runner with processes."""

from __future__ import annotations

import logging
import os
import random
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs
import numpy as np

from tpk.argument_checks import check_positive, given
from tpk.dataflow.base import ProxyDataFlow, RNGDataFlow, allocate_with, flow_length, reset_state, shard
from tpk.dataflow.parallel.link import END_OF_PASS, Receiver, Sender
from tpk.dataflow.parallel.workers import WorkerProcess, check_worker_init, start_workers, stop_all
from tpk.dataflow.position import Parts, Position
from tpk.dataflow.transforms.map import log_undivided
from tpk.errors import InputError

if TYPE_CHECKING:
    from tpk.dataflow.parallel.thread_flows import Buffer, FlowThread

STATE_EVERY, STATE_SECONDS = 16, 0.005
"""The least number of datapoints and seconds between two reports of the position of a worker's flow; a resumed worker
skips the datapoints since. A report takes longer than a small datapoint."""


MemberT = TypeVar("MemberT", bound="WorkerProcess | FlowThread")
RunnerT = TypeVar("RunnerT", bound="FlowRunner[Any]")


class FlowRunner(ProxyDataFlow, RNGDataFlow, Generic[MemberT]):
    """Base of the runners, which have a team of workers that lives from pass to pass.

    Args:
        flow: any iterable of datapoints.
        num_workers: number of workers that divide it.
        seed: see `RNGDataFlow`.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], num_workers: int, seed: int | None) -> None:
        ProxyDataFlow.__init__(self, flow)
        RNGDataFlow.__init__(self, seed)
        self.num_workers = num_workers
        self._team: Team[MemberT] | None = None
        self._state = TeamState.of(num_workers)  # while there is no team
        self._is_loaded = False
        self._has_warned_of_undivided = False

    def reset_state(self) -> None:
        """Do nothing: the workers reset the flow."""

    def __iter__(self) -> Iterator[Any]:
        if self._team is not None and not self._team.is_own:
            self.close()
        if not self._is_loaded:
            self.break_off()
        if self._team is None:
            self._team = self._new_team()
        return self._deliver(self._team)

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, with new workers if it is in the middle of a pass."""
        if self._team is not None and self._team.in_pass:
            self.close()
        if self._state.in_pass:
            self._state.give_up_pass()
        self._is_loaded = False

    def close(self) -> None:
        """End the workers. The next iteration starts new ones, which continue with the next pass."""
        if self._team is not None:
            team, self._team = self._team, None
            self._state = team.state()
            if team.is_own:
                self._stop(team)

    def with_sources(self: RunnerT, sources: Sequence[Iterable[Any]]) -> RunnerT:
        """Return a copy, with its own workers, on top of another flow."""
        runner = super().with_sources(sources)
        runner._state, runner._is_loaded = TeamState.of(self.num_workers), False
        return runner

    def state_dict(self) -> dict[str, Any]:
        """Return the position: whose turn it is, and the position of each worker's flow."""
        return attrs.asdict(self._state if self._team is None else self._team.state())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state.

        Raises:
            InputError: it is the state of a different number of workers.
        """
        if len(state["workers"]) != self.num_workers:
            raise InputError(
                f"the position is of {len(state['workers'])} workers, but this {type(self).__name__} has "
                f"{self.num_workers}, which divide the data differently. Resume with {len(state['workers'])} workers."
            )
        self.close()
        self._state, self._is_loaded = TeamState.from_dict(state), True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_team": None}

    @abstractmethod
    def _start(self, state: TeamState, shares: Sequence[Iterable[Any]]) -> Team[MemberT]:
        """Start the workers at the position `state`, each with its share of the flow."""

    @abstractmethod
    def _stop(self, team: Team[MemberT]) -> None:
        """End the workers."""

    def _share(self, index: int) -> Iterable[Any]:
        return shard(self.flow, index, self.num_workers)

    def _new_team(self) -> Team[MemberT]:
        self._is_loaded = False
        shares = [self._share(index) for index in range(self.num_workers)]
        if self.num_workers > 1 and not self._has_warned_of_undivided:
            self._has_warned_of_undivided = True
            log_undivided(shares[0], type(self).__name__, f"its {self.num_workers} workers", logging.WARNING)
        return self._start(self._state, shares)

    def _deliver(self, team: Team[MemberT]) -> Generator[Any, None, None]:
        size, delivered = None if team.in_pass else flow_length(self), 0
        finished = False
        try:
            for datapoint in team:
                delivered += 1
                yield datapoint
                datapoint = None  # free its memory before the next one arrives
                if self._team is not team:
                    break
            else:
                finished = True
        except GeneratorExit:
            # A consumer that knows the length may stop after the last datapoint.
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


class MultiProcessRunner(FlowRunner[WorkerProcess]):
    """Run a flow in worker processes: each makes its share of the datapoints, ahead of their use.

    The flow is divided by `shard`: if it is based on a sequence, each worker makes only the datapoints of its share. If
    it is based on a generator or another plain iterable, each worker iterates all of it, and a warning says so. Let
    such a source deliver something cheap, such as file names, and do the work in a `MapData` on top.

    Datapoints are taken from the workers in turn, so each comes once per pass, in the order of the flow, and batches
    are the same, too. If the flow drops datapoints or draws random numbers for each, the result depends on the number
    of workers, and on nothing else. Each worker of an endless random flow draws different numbers.

    Arrays come through shared memory, aligned so that TensorFlow takes them without a copy. Batches are built there if
    `BatchData` is the last stage (or has only `RepeatedData`, `FixedSizeData` or `PrintData` on top). They may be kept
    and changed; their memory is reused when the last view is gone. All other datapoints must be picklable.

    A worker is a fresh interpreter, which gets the flow by cloudpickle. So the flow may contain lambdas, closures and
    classes of the main script, which needs no ``if __name__ == "__main__"``. The flow's ``reset_state`` is called in
    each worker, not here. Workers live from pass to pass. They end when the flow is closed or collected, when an
    iteration is left in mid-pass, or when their parent dies.

    Args:
        flow: any iterable of datapoints that can be pickled.
        num_proc: number of workers.
        num_prefetch: number of datapoints that each worker may be ahead; by default up to 64 datapoints, in 64 MB.
        seed: seed of the global random numbers of Python and NumPy in the workers (the flow has its own seed); by
            default drawn, or derived from the seed of the run.
        worker_init: the name ``"module:function"`` of a function without arguments. Each worker calls it before the
            flow is unpickled and anything of the main script is imported. Use it for settings of the process, such as
            ``tf.compat.v1.disable_v2_behavior()`` or the number of OpenCV's threads.

    Attributes:
        warn_after: seconds without a datapoint until a warning shows the stack of the worker; repeated after
            twice that time.

    Raises:
        ConfigError: a number is not positive or `worker_init` is not a name of a function; and, at the start of an
            iteration, the flow cannot be pickled, or the function is missing.
        InputError: (during iteration) a worker died.
        Exception: (during iteration) an exception of the flow in a worker, with its traceback there as the cause.

    Example:
        ```python
        flow = MapData(DataFromList(files, shuffle=True), read_and_augment)
        flow = MultiProcessRunner(BatchData(flow, 32), num_proc=4)
        ```
    """

    warn_after: float = 60.0

    def __init__(
        self,
        flow: Iterable[Any],
        num_proc: int,
        num_prefetch: int | None = None,
        seed: int | None = None,
        *,
        worker_init: str | None = None,
    ) -> None:
        check_positive(self, num_proc=num_proc, **given(num_prefetch=num_prefetch))
        check_worker_init(self, worker_init)
        super().__init__(flow, num_proc, seed)
        self.num_proc = num_proc
        self.num_prefetch = num_prefetch
        self.worker_init = worker_init

    def _start(self, state: TeamState, shares: Sequence[Iterable[Any]]) -> Team[WorkerProcess]:
        works = [
            SeededWork(RunFlow(share, start, GlobalRandom()), self.seed, (*self.worker, index))
            for index, (share, start) in enumerate(zip(shares, state.workers, strict=True))
        ]
        workers = start_workers(type(self).__name__, works, self.num_prefetch, self.warn_after, self.worker_init)
        return Team(workers, state)

    def _stop(self, team: Team[WorkerProcess]) -> None:
        stop_all(team.members)


@attrs.frozen
class RunFlow:
    """The work of a worker: delivers a share of the flow, pass after pass."""

    flow: Iterable[Any]
    start: WorkerState
    random: GlobalRandom | None = None

    def __call__(self, sender: Sender | Buffer, tasks: object = None) -> None:
        """Run; this ends only by an exception, such as a closed link."""
        reset_state(self.flow)
        allocate_with(self.flow, sender.allocate)
        position = Position(self.flow)
        datapoints = self._continue(position)
        delivered, due = 0, 0.0
        while True:
            for datapoint in datapoints:
                sender.send(datapoint)
                datapoint = None  # its memory may be used for the next one
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

    def _continue(self, position: Position) -> Parts:
        """Return the iterator of the current pass at the start."""
        if self.random is not None:
            self.random.begin()
        state = self.start.position
        if state is not None:
            position.load_state_dict(state["flow"])
        datapoints = iter(position)
        if state is not None and self.random is not None:
            self.random.restore(state.get("random"))
        *given_up, last = self.start.skips
        for items in given_up:
            _skip(position, datapoints, items).close()
            datapoints = iter(position)
        return _skip(position, datapoints, last)


def _skip(position: Position, datapoints: Parts, items: int) -> Parts:
    """Skip `items` datapoints and ends of passes; return the iterator of the pass after them."""
    for _ in range(items):
        if next(datapoints, END_OF_PASS) is END_OF_PASS:
            datapoints = iter(position)
    return datapoints


def iteration_is_over(flow: object) -> InputError:
    """Return the error of an iteration whose workers were ended by the next iteration, or by `close`."""
    kind = type(flow).__name__
    return InputError(
        f"this iteration of {kind} is over: the flow was iterated again, or closed. Its workers serve one consumer at "
        f"a time; make another {kind} for a second consumer, such as an evaluation."
    )


@attrs.define
class WorkerState:
    """The position of a worker's flow.

    Attributes:
        position: the last state of its flow and random numbers that it sent; None at the very beginning.
        skips: the number of datapoints and ends of passes since then. Each further number counts those after a pass
            that was left in the middle.
    """

    position: Any = None
    skips: list[int] = attrs.field(factory=lambda: [0])

    def after(self, items: int) -> WorkerState:
        """Return the position `items` datapoints and ends of passes later."""
        *before, last = self.skips
        return WorkerState(self.position, [*before, last + items])


@attrs.define
class TeamState:
    """The position of a team: of each worker, whose turn it is, and which workers have finished the pass."""

    workers: list[WorkerState]
    turn: int
    over: list[bool]
    in_pass: bool

    @classmethod
    def of(cls, count: int) -> TeamState:
        """Return the initial state of `count` workers."""
        return cls([WorkerState() for _ in range(count)], 0, [False] * count, False)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> TeamState:
        """Return the state of a `state_dict`."""
        workers = [WorkerState(worker["position"], list(worker["skips"])) for worker in state["workers"]]
        return cls(workers, state["turn"], list(state["over"]), state["in_pass"])

    def begin_next_pass(self) -> None:
        """Begin the next pass, which all workers have reached."""
        self.turn, self.over, self.in_pass = 0, [False] * len(self.workers), False

    def give_up_pass(self) -> None:
        """Let each worker leave an unfinished pass, and begin the next one."""
        for worker, is_over in zip(self.workers, self.over, strict=True):
            if not is_over:
                worker.skips.append(0)
        self.begin_next_pass()


class Team(Generic[MemberT]):
    """Takes datapoints of workers in turn.

    Args:
        members: the workers, which deliver datapoints and ends of passes.
        state: their position at the start.

    Attributes:
        members: the workers.
    """

    def __init__(self, members: Sequence[MemberT], state: TeamState) -> None:
        self.members = members
        self._state = state

    @property
    def in_pass(self) -> bool:
        """Whether a pass has begun and is not over."""
        return self._state.in_pass

    @property
    def is_own(self) -> bool:
        """Whether this process started the workers, and is not a fork of the process that did."""
        return all(member.owner == os.getpid() for member in self.members)

    def __iter__(self) -> Generator[Any, None, None]:
        """Deliver the rest of the pass."""
        members, state, over = self.members, self._state, self._state.over
        count = len(members)
        state.in_pass = True
        while not all(over):
            turn = state.turn
            if not over[turn]:
                item = members[turn].receive()
                if item is END_OF_PASS:
                    over[turn] = True
                else:
                    state.turn = (turn + 1) % count
                    yield item
                    item = None  # free its memory before the next one arrives
                    continue
            state.turn = (turn + 1) % count
        state.begin_next_pass()

    def end_pass(self) -> bool:
        """Take the end of the pass from all workers; return False if a worker sends something else."""
        over = self._state.over
        for number, member in enumerate(self.members):
            if not over[number]:
                if member.receive() is not END_OF_PASS:
                    return False
                over[number] = True
        self._state.begin_next_pass()
        return True

    def state(self) -> TeamState:
        """Return the current position."""
        workers = []
        for member, began_at in zip(self.members, self._state.workers, strict=True):
            position, items = member.progress()
            workers.append(began_at.after(items) if position is None else WorkerState(position, [items]))
        return attrs.evolve(self._state, workers=workers, over=list(self._state.over))


@attrs.frozen
class SeededWork:
    """Work of a worker process with seeded global random numbers of Python and NumPy.

    Attributes:
        work: called with the sender of results and the receiver of tasks.
        seed: the seed of all workers.
        worker: the indices of this worker.
    """

    work: Callable[[Sender, Receiver], Any]
    seed: int
    worker: tuple[int, ...]

    def __call__(self, sender: Sender, tasks: Receiver) -> None:
        """Do the work."""
        state = np.random.SeedSequence(self.seed, spawn_key=self.worker).generate_state(2)
        random.seed(int(state[0]))
        np.random.seed(state[1])
        self.work(sender, tasks)


class GlobalRandom:
    """The state of the global random numbers of Python and NumPy in a worker process.

    It is saved only if the user's code draws from them.
    """

    def __init__(self) -> None:
        self._at_first: Any = None

    def begin(self) -> None:
        """Remember the initial state; called in the worker."""
        self._at_first = _states()

    def state(self) -> Any:
        """Return the state as plain data; None if no number was drawn."""
        python, numpy = now = _states()
        if now == self._at_first:
            return None
        version, words, gauss = python
        name, key, *rest = numpy
        return [[version, list(words), gauss], [name, np.frombuffer(key, np.uint32).tolist(), *rest]]

    def restore(self, state: Any) -> None:
        """Continue from a saved state."""
        if state is not None:
            (version, words, gauss), numpy_state = state
            random.setstate((version, tuple(words), gauss))
            np.random.set_state(tuple(numpy_state))


def _states() -> tuple[Any, Any]:
    """Return the states of both generators as values that can be compared."""
    name, key, *rest = np.random.get_state()
    return random.getstate(), (name, np.asarray(key).tobytes(), *rest)
