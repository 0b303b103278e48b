"""Agreement between the processes of a training: on what they train, and when they stop and save."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import tpk
from tpk import __version__
from tpk.errors import MismatchError, PeerError, noting
from tpk.graph.variables import saveable_variables, variable_name
from tpk.plugin import Callback, get_catalog, hookimpl
from tpk.plugin.progress import StopRequest
from tpk.train.epoch import batch_of
from tpk.train.resume.checkpoints import Checkpoints
from tpk.train.resume.state import take_own_state
from tpk.train.run.run_description import shared_facts

if TYPE_CHECKING:
    from tpk.input_source.base import InputSource

logger = logging.getLogger(__name__)

_MOST_STEPS_BETWEEN_MEETINGS = 10_000
_SHOWN = 5


def check_agreement(trainer: tpk.Trainer) -> None:
    """Check that all processes are about to train the same model in the same way.

    Called when the graph is complete, before the first collective operation.

    Raises:
        MismatchError: in every process, if they differ; the message lists the processes and the differences.
    """
    _check_same(trainer, "the facts that all processes must share", _common_facts(trainer))


def check_data_agreement(trainer: tpk.Trainer, source: InputSource) -> None:
    """Check that all processes have the same data, if the strategy divides it among them.

    Args:
        trainer: the trainer.
        source: the data before it is divided.

    Raises:
        MismatchError: in every process, if their data differs.
    """
    facts: dict[str, Any] = {"shard_data": trainer.strategy.describe().get("shard_data", False)}
    if facts["shard_data"]:
        facts |= {"seed": trainer.graph.seed, "batch size": batch_of(source)[0], "the length of the data": source.size}
    _check_same(trainer, "the data", {name: str(value) for name, value in facts.items()})


def _check_same(trainer: tpk.Trainer, what: str, facts: Mapping[str, str]) -> None:
    if trainer.strategy.process_group.world_size == 1:
        return
    chief, *others = trainer.strategy.process_group.gather_object(what, facts)
    differences = [_differences(theirs, chief) for theirs in others]
    if any(differences):
        summaries = [_summary(rank, found) for rank, found in enumerate(differences, start=1) if found]
        raise MismatchError(
            f"the processes of this training differ. {' '.join(summaries)} Start the same script, with the same "
            "options and the same packages installed, in each of them."
        )


def make_checkpoints(trainer: tpk.Trainer) -> Checkpoints:
    """Return the object that takes the checkpoints of a training, for one process or several."""
    return Checkpoints(trainer) if trainer.strategy.world_size == 1 else AgreedCheckpoints(trainer)


class AgreedCheckpoints(Checkpoints):
    """Takes checkpoints of, and ends, a training of several processes, in steps on which all of them agree.

    The processes meet at the end of each epoch, and within it about once per second, after a number of steps that the
    chief has set at the previous meeting. If any of them has been asked to stop, all stop there. If a saver of the
    chief has requested a checkpoint, it is taken there, with the position of each process in its data. So within an
    epoch, both may happen up to a second after the request.

    Args:
        trainer: the trainer.
        clock: returns the time in seconds.
    """

    def __init__(self, trainer: tpk.Trainer, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(trainer)
        self.unused_hooks = ()
        self.agreed_stop = StopRequest()
        self._clock = clock
        self._met_at = clock()
        self._pace = 1
        self._steps_since = 0

    def save_now(self) -> Path | None:
        """Save a checkpoint of this moment, and wait until it is on disk; called in all processes."""
        self._gather_states()
        path = super().save_now() if self.trainer.is_chief else None
        # No process may leave before the chief has read the variables.
        self.trainer.strategy.process_group.barrier("the last checkpoint")
        return path

    @hookimpl(trylast=True)
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Meet the other processes: one of them may have been asked to stop before the first step."""
        self._serve_requests()

    @hookimpl(trylast=True)
    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Meet the other processes, if it is time."""
        self._steps_since += 1
        if self._steps_since >= self._pace:
            self._serve_requests()

    @hookimpl(tryfirst=True)
    def after_train(self, trainer: tpk.Trainer) -> None:
        """Meet the other processes a last time, if the training ends normally.

        Raises:
            PeerError: if the training does not end in the other processes.
        """
        note = (
            f"the training of this process, rank {trainer.strategy.process_group.rank}, had ended: "
            f"{trainer.loop.ended_by}. All processes must end in the same step: give all of them the same amount of "
            "data, or infinite data."
        )
        with noting(note, PeerError):
            super().after_train(trainer)

    def _serve_requests(self) -> None:
        trainer, local_stop = self.trainer, self.trainer.loop.stop
        mine = {
            "pace": self._next_pace(),
            "saves": bool(self._requests),
            "stop": local_stop.reason if local_stop.is_set() else None,
            "signum": local_stop.signum,
        }
        where = (
            f"the meeting after epoch {trainer.epoch_num}, step {trainer.local_step}, with "
            f"steps_per_epoch={trainer.loop.steps_per_epoch}"
        )
        requests = trainer.strategy.process_group.gather_object(where, mine)
        self._pace, self._steps_since = requests[0]["pace"], 0
        stops = [(rank, request) for rank, request in enumerate(requests) if request["stop"] is not None]
        if stops and not self.agreed_stop.is_set():
            # Signals take precedence over other reasons to stop.
            self._agree_to_stop(*max(stops, key=lambda stop: stop[1]["signum"] is not None))
        if requests[0]["saves"]:
            self._gather_states()
            self._take()
        self._met_at = self._clock()

    def _next_pace(self) -> int:
        """Return the number of steps until the next meeting: at most twice as many as before the last one."""
        elapsed = max(self._clock() - self._met_at, 1e-6)
        in_time = int(self._steps_since * self.trainer.strategy.seconds_between_meetings / elapsed)
        return max(1, min(in_time, 2 * self._pace, _MOST_STEPS_BETWEEN_MEETINGS))

    def _agree_to_stop(self, rank: int, request: Mapping[str, Any]) -> None:
        reason, signum = request["stop"], request["signum"]
        if rank != self.trainer.strategy.process_group.rank:
            reason = f"rank {rank} stops: {reason}"
        for stop in (self.agreed_stop, self.trainer.loop.stop):
            stop.set(reason)
            if signum is not None and stop.signum is None:
                stop.set_by_signal(signum)

    def _gather_states(self) -> None:
        own = None if self.trainer.is_chief else take_own_state(self.trainer)
        states = self.trainer.strategy.process_group.gather_object("the states for a checkpoint", own)
        self._states_of_others = states[1:]


def _common_facts(trainer: tpk.Trainer) -> dict[str, str]:
    shared = {name: value for name, value in shared_facts(trainer).items() if name != "num_replicas"}
    plugins = trainer.hooks.plugins.values()
    everywhere = [plugin for plugin in plugins if isinstance(plugin, Callback) and not plugin.chief_only]
    return {
        "tpk": __version__,
        "TensorFlow": tf.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **{name: str(value) for name, value in shared.items()},
        "steps_per_epoch": str(trainer.loop.steps_per_epoch),
        "starting_epoch": str(trainer.loop.starting_epoch),
        "max_epoch": str(trainer.loop.max_epoch),
        "the list of callbacks that run in all processes": ", ".join(type(plugin).__name__ for plugin in everywhere),
        **{f"{entry.kind} {entry.name!r}": str(entry) for entry in get_catalog().loaded()},
        **{
            f"variable {variable_name(variable)!r}": f"{variable.dtype.base_dtype.name} of shape {variable.shape}"
            for variable in saveable_variables(trainer.graph)
        },
    }


def _differences(facts: Mapping[str, str], expected: Mapping[str, str]) -> list[tuple[str, str, str]]:
    found = [(name, facts.get(name, "missing"), expected.get(name, "missing")) for name in {**expected, **facts}]
    return [each for each in found if each[1] != each[2]]


def _summary(rank: int, differences: Sequence[tuple[str, str, str]]) -> str:
    shown = [f"{name} is {theirs}, and {expected} in rank 0" for name, theirs, expected in differences[:_SHOWN]]
    more = len(differences) - len(shown)
    return f"In rank {rank}: {'; '.join(shown)}" + (f"; and {more} more." if more else ".")
