"""Resumption of a training from a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpk.checkpoint.files import Checkpoint
from tpk.checkpoint.reader import CheckpointReader
from tpk.checkpoint.variables import read_variables, saved_name
from tpk.errors import CheckpointError
from tpk.graph.variables import by_name, variable_name
from tpk.plugin import Callback, hookimpl
from tpk.train.resume.training_state import (
    restore_callbacks,
    restore_input,
    restore_random_state,
    run_facts,
    state_of_rank,
    taking_back,
)

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class Resumption(Callback):
    """Brings a training to where a checkpoint was taken, in two parts; the trainer registers it after all others.

    A resume goes one way: `tpk.train.run.directory.open_run` finds the `Checkpoint`, the trainer sets up what is to
    go on, and then ``begin`` and one of the hooks here give back what `tpk.train.resume.training_state.take_state` has
    taken.

    Before ``before_train``: progress, what the monitors have recorded, the position in the data, and the variables.
    After all ``before_train``, and if the checkpoint lies within an epoch, after all ``before_epoch`` of that epoch:
    the variables once more, the state of the callbacks, and random state. So nothing that these hooks do, which the run
    before has done already, tells a resumed training from one that was never interrupted. What they report in between
    was reported then, too, and is dropped.

    Args:
        checkpoint: where to go on.
    """

    chief_only = False

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._state: Mapping[str, Any] = checkpoint.state
        self._values: Mapping[str, np.ndarray] | None = None

    @property
    def path(self) -> Path:
        """The path of the checkpoint."""
        return Path(self._checkpoint.prefix)

    def begin(self, trainer: TrainerProtocol) -> None:
        """Do the first part; called when the session is there.

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
        # Last: what was recorded after the checkpoint is cut off there, which a refusal must not lead to.
        trainer.monitors.load_state_dict(self._state["monitors"])
        trainer.monitors.pause()

    @hookimpl(trylast=True)
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Do the second part, if the checkpoint was taken at the end of an epoch."""
        self._finish(trainer)

    @hookimpl(trylast=True)
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Do the second part, if the checkpoint was taken within an epoch."""
        if self._values is not None:
            self._finish(trainer)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hook in which the second part is done."""
        return (
            {"before_train": self.before_train} if self._state["epoch_is_over"] else {"before_epoch": self.before_epoch}
        )

    def _finish(self, trainer: TrainerProtocol) -> None:
        assert self._values is not None
        trainer.checkpoints.assign(self._values)
        self._values = None
        trainer.loop.progress.load_state_dict(self._state["progress"])
        with taking_back(type(trainer).__name__):
            trainer.load_state_dict(self._state["trainer"])
        restore_callbacks(trainer, self._state["callbacks"])
        trainer.checkpoints.forget_requests()
        trainer.monitors.resume()
        restore_random_state(self._state["random"])

    def _check_run(self, trainer: TrainerProtocol) -> None:
        before, now = self._state["run"], run_facts(trainer)
        progress = self._state["progress"]
        if not self._state["epoch_is_over"] and progress["local_step"] >= trainer.loop.steps_per_epoch:
            raise CheckpointError(
                f"{self._checkpoint.prefix} was taken after step {progress['local_step'] + 1} of an epoch of "
                f"{before.get('steps_per_epoch')} steps, but an epoch has {trainer.loop.steps_per_epoch} now. Give "
                "the former steps_per_epoch, or start a new run from the variables (session_init)."
            )
        changes = [
            f"{name}: {before.get(name)!r} → {now.get(name)!r}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if changes:
            logger.warning(
                "the run has changed since the checkpoint (%s), so it will not go on as it would have",
                "; ".join(changes),
            )

    def _read_variables(self, trainer: TrainerProtocol) -> dict[str, np.ndarray]:
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
                "A model that has changed cannot resume a run. Start a new one: give another run_dir, and, for the "
                f"variables that are the same, session_init=tpk.SmartInit({self._checkpoint.prefix!r}, "
                "ignore_mismatch=True, weights_only=True)."
            )
        if missing:
            names = ", ".join(map(variable_name, missing))
            logger.warning("not in %s, left as initialized: %s", self._checkpoint.prefix, names)
        unused = set(CheckpointReader(self._checkpoint.prefix)) - set(map(saved_name, variables))
        if unused:
            logger.warning("in %s, but not in the graph: %s", self._checkpoint.prefix, ", ".join(sorted(unused)))
        return values
