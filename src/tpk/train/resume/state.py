"""The training state, without the variables: `take_state` takes it for a checkpoint, `Resumption` restores it."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tpk
from tpk.callbacks.triggers import innermost
from tpk.checkpoint.encoding import encode, state_keys
from tpk.checkpoint.files import Checkpoint
from tpk.checkpoint.reader import CheckpointReader
from tpk.checkpoint.restore import how_to_restore_the_rest
from tpk.checkpoint.variable_writer import read_variables, saved_name
from tpk.errors import CheckpointError, noting
from tpk.graph.variables import by_name, variable_name
from tpk.monitors.base import Monitor
from tpk.plugin import Callback, hookimpl
from tpk.train.run.run_description import run_facts

logger = logging.getLogger(__name__)


def take_state(trainer: tpk.Trainer, epoch_is_over: bool, others: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the current training state, encoded.

    Args:
        trainer: a trainer between two steps, or between two epochs.
        epoch_is_over: whether all hooks of the epoch have been called.
        others: what `take_own_state` returns in the other processes, in the order of their ranks.

    Raises:
        CheckpointError: if a state is not plain data. The message names its owner.
    """
    return {
        "progress": trainer.loop.progress.state_dict(),
        "epoch_is_over": epoch_is_over,
        "run": encode(run_facts(trainer), "the description of the run"),
        "trainer": encode(trainer.state_dict(), f"the state of {type(trainer).__name__}"),
        "monitors": encode(trainer.monitors.state_dict(), "the state of the monitors"),
        **take_own_state(trainer),
        "others": list(others),
    }


def take_own_state(trainer: tpk.Trainer) -> dict[str, Any]:
    """Return the part of the training state that differs between the processes of a training, encoded.

    Raises:
        CheckpointError: if a state is not plain data. The message names its owner.
    """
    source, callbacks = trainer.input_source, {}
    for key, callback in _keyed(trainer).items():
        with noting(f"in state_dict of callback {key!r}"):
            state = callback.state_dict()
        if state:
            callbacks[key] = encode(state, f"the state of callback {key!r}")
    return {
        "callbacks": callbacks,
        "input": None
        if source is None
        else {
            "source": type(source).__name__,
            "position": encode(source.state_dict(), f"the position of {type(source).__name__}"),
        },
        "random": encode(_random_state(), "the random state"),
    }


class Resumption(Callback):
    """Restores the training state and the variables of a checkpoint, in two parts. The trainer registers it last.

    `begin`, before ``before_train``, restores progress, the records of the monitors, the position in the data, and the
    variables.

    After all ``before_train`` (or, if the checkpoint was taken within an epoch, after all ``before_epoch`` of that
    epoch), a hook restores the variables again, the callbacks, and the random state. This undoes the effects of these
    hooks, because the interrupted run had already called them. Their reports are dropped for the same reason.

    Args:
        checkpoint: where to resume.
    """

    chief_only = False

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._state: Mapping[str, Any] = checkpoint.state
        self.unused_hooks = ["before_epoch" if self._state["epoch_is_over"] else "before_train"]
        self._values: Mapping[str, np.ndarray] | None = None

    @property
    def path(self) -> Path:
        """The path of the checkpoint."""
        return Path(self._checkpoint.prefix)

    def begin(self, trainer: tpk.Trainer) -> None:
        """Restore the first part, once there is a session.

        Raises:
            CheckpointError: if the checkpoint does not fit the trainer.
        """
        process_group = trainer.strategy.process_group
        self._state = state_of_rank(self._checkpoint.state, process_group.rank, process_group.world_size)
        logger.info(
            "resuming from %s: epoch %d, step %d of it, global step %d",
            self._checkpoint.prefix,
            self._state["progress"]["epoch_num"],
            self._state["progress"]["local_step"] + 1,
            self._state["progress"]["global_step"],
        )
        if trainer.is_chief:
            self._check_run(trainer)
        self._values = self._read_variables(trainer)
        trainer.checkpoints.assign(self._values)
        trainer.loop.resume_at(self._state["progress"], epoch_is_over=self._state["epoch_is_over"])
        restore_input(trainer, self._state["input"])
        # Last, because it removes the records of later steps: nothing may fail after that.
        trainer.monitors.load_state_dict(self._state["monitors"])
        trainer.monitors.pause()

    @hookimpl(trylast=True)
    def before_train(self, trainer: tpk.Trainer) -> None:
        """Restore the second part, if the checkpoint was taken at the end of an epoch."""
        self._finish(trainer)

    @hookimpl(trylast=True)
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Restore the second part, if the checkpoint was taken within an epoch."""
        if self._values is not None:
            self._finish(trainer)

    def _finish(self, trainer: tpk.Trainer) -> None:
        assert self._values is not None
        trainer.checkpoints.assign(self._values)
        self._values = None
        trainer.loop.progress.load_state_dict(self._state["progress"])
        with restoring(type(trainer).__name__):
            trainer.load_state_dict(self._state["trainer"])
        restore_callbacks(trainer, self._state["callbacks"])
        trainer.checkpoints.forget_requests()
        trainer.monitors.resume()
        restore_random_state(self._state["random"])

    def _check_run(self, trainer: tpk.Trainer) -> None:
        before, now = self._state["run"], run_facts(trainer)
        progress = self._state["progress"]
        if not self._state["epoch_is_over"] and progress["local_step"] >= trainer.loop.steps_per_epoch:
            raise CheckpointError(
                f"{self._checkpoint.prefix} was taken after step {progress['local_step'] + 1} of an epoch of "
                f"{before.get('steps_per_epoch')} steps, but an epoch now has {trainer.loop.steps_per_epoch}. Give "
                "the former steps_per_epoch, or start a new run from the variables (session_init)."
            )
        changes = [
            f"{name}: {before.get(name)!r} → {now.get(name)!r}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if changes:
            logger.warning(
                "the run has changed since the checkpoint (%s), so it will not continue exactly as before",
                "; ".join(changes),
            )

    def _read_variables(self, trainer: tpk.Trainer) -> dict[str, np.ndarray]:
        if not trainer.is_chief:  # It gets them from the chief.
            return {}
        variables = trainer.checkpoints.variables
        values, known = read_variables(self._checkpoint.prefix, variables), by_name(variables)
        shared = {variable_name(variable) for variable in trainer.checkpoints.shared_variables}
        missing = [variable for variable in variables if variable_name(variable) in shared - values.keys()]
        changed = [variable_name(variable) for variable in missing if variable.trainable]
        for name, value in values.items():
            shape, before = known[name].shape, np.shape(value)
            if not shape.is_compatible_with(before):
                changed.append(f"{name} (of shape {shape}, which was {before})")
        if changed:
            raise CheckpointError(
                f"the model has changed: {self._checkpoint.prefix} does not have {', '.join(changed)}. "
                "A model that has changed cannot resume a run. Start a new one: give another run_dir. "
                f"{how_to_restore_the_rest(repr(self._checkpoint.prefix))}"
            )
        if missing:
            names = ", ".join(map(variable_name, missing))
            logger.warning("not in %s, left as initialized: %s", self._checkpoint.prefix, names)
        unused = set(CheckpointReader(self._checkpoint.prefix)) - set(map(saved_name, variables))
        if unused:
            logger.warning("in %s, but not in the graph: %s", self._checkpoint.prefix, ", ".join(sorted(unused)))
        return values


def state_of_rank(state: Mapping[str, Any], rank: int, world_size: int) -> dict[str, Any]:
    """Return the training state that one process restores.

    If the number of processes has changed, the data and the global random numbers start from the beginning, because the
    positions of the former processes do not apply to the new ones.

    Args:
        state: what `take_state` returned.
        rank: the rank of the process.
        world_size: the number of processes.
    """
    others = state["others"]
    if len(others) + 1 != world_size:
        if rank == 0:
            logger.warning(
                "the checkpoint is of %d processes, and now there are %d: the data starts from the beginning",
                len(others) + 1,
                world_size,
            )
        return {**state, "input": None, "random": None}
    return {**state, **(others[rank - 1] if rank else {})}


def restore_callbacks(trainer: tpk.Trainer, states: Mapping[str, Any]) -> None:
    """Restore the callbacks by their keys, and log which states and callbacks have no counterpart.

    Raises:
        CheckpointError: if a callback cannot restore its state.
    """
    callbacks = _keyed(trainer)
    for key, callback in callbacks.items():
        if key in states:
            with restoring(f"callback {key!r}"):
                callback.load_state_dict(states[key])
    unused = sorted(states.keys() - callbacks.keys())
    if unused and trainer.is_chief:
        logger.warning(
            "the checkpoint has the state of callbacks that this run does not have: %s. It is ignored.",
            ", ".join(unused),
        )
    new = sorted(key for key, callback in callbacks.items() if key not in states and callback.state_dict())
    if new and trainer.is_chief:
        logger.warning("callbacks without a state in the checkpoint start from scratch: %s", ", ".join(new))


def restore_input(trainer: tpk.Trainer, state: Mapping[str, Any] | None) -> None:
    """Restore the position in the data, before the input starts.

    Raises:
        CheckpointError: if the input cannot restore it.
    """
    source, position = trainer.input_source, state["position"] if state else {}
    if source is None:
        if position:
            logger.warning("the checkpoint has a position in the data, but this trainer has no input_source")
        return
    kind = type(source).__name__
    if state is None or not position:
        logger.info("%s keeps no position in its data; it starts from the beginning", kind)
        return
    if state["source"] != kind:
        logger.warning("the input source was %s, and is %s now", state["source"], kind)
    try:
        source.load_state_dict(position)
    except Exception as error:
        raise CheckpointError(
            f"{kind} cannot continue from the position that {state['source']} saved in the checkpoint: {error}. Use "
            "the same kind of input, or start a new run from the variables (session_init)."
        ) from error


@contextmanager
def restoring(owner: str) -> Iterator[None]:
    """Name the owner of the state in the error, if it cannot be restored within the context.

    Raises:
        CheckpointError: if that fails.
    """
    try:
        yield
    except Exception as error:
        raise CheckpointError(
            f"{owner} cannot restore its state from the checkpoint: {error!r}. Has its class changed since? Leave it "
            "out, or start a new run from the variables (session_init)."
        ) from error


def restore_random_state(state: Mapping[str, Any] | None) -> None:
    """Restore the global random state of Python and NumPy, if it is known."""
    if state is not None:
        version, numbers, gauss = state["python"]
        random.setstate((version, tuple(numbers.tolist()), gauss))
        np.random.set_state(state["numpy"])


def _random_state() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    return {"python": (version, np.array(numbers, np.int64), gauss), "numpy": np.random.get_state()}


def _keyed(trainer: tpk.Trainer) -> dict[str, Callback]:
    """Return the callbacks of a trainer by their keys in a training state; a proxy has the key of what it wraps."""
    callbacks = [
        plugin
        for plugin in trainer.hooks.plugins.values()
        if isinstance(plugin, Callback) and not isinstance(plugin, Monitor)
    ]
    return dict(zip(state_keys(map(innermost, callbacks)), callbacks, strict=True))
