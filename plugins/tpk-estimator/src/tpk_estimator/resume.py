"""Resuming a killed training to the same bits: how far it was at each checkpoint, in a hidden folder of ``model_dir``.

The checkpoints are an Estimator's, with the variables alone. Before each of them, the number of steps that the training
has made since its input began goes to a file in the folder. A resumed training makes as many again, of which it runs
what has a state outside of the checkpoint: the input, and TensorFlow's random ops. A training that ends normally
removes the file, so the next one starts its input again.
"""

from __future__ import annotations

import json
import logging
import signal
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpk
from tpk.durable_files import replace_file
from tpk.graph.variables import assign_values, saveable_variables
from tpk_estimator.model import Inputs

FOLDER = ".tpk"

logger = logging.getLogger(__name__)


class ResumePoint(tpk.Callback):
    """Brings a resumed training to the state of the killed one. It must come before callbacks that save checkpoints.

    Args:
        inputs: the input of the training.
        train_op: the op of a step.
        model_dir: the directory of the Estimator.

    Attributes:
        folder: the hidden folder.
        listener: writes the number of steps with each checkpoint of the Estimator.
    """

    def __init__(self, inputs: Inputs, train_op: Any, model_dir: Any) -> None:
        self.folder = Path(model_dir, FOLDER)
        self.listener = _WriteSteps(self)
        self._path = self.folder / "steps.json"
        self._ops = [*inputs.ops, *_random_ops(train_op)]
        # By the global step of the checkpoint; the names in a JSON file are texts.
        self._known = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._before = self._known.get(str(step_of_latest(model_dir)), 0)
        self._first_step = 0

    def configure_run(self, run: Any) -> None:
        """Let each training write to the log in the folder."""
        run.may_hold_run = True

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Count the steps from here."""
        self._first_step = trainer.global_step

    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Run the input and the random ops as often as the killed training did."""
        if self._before:
            logger.info("the input of %d steps is taken again, and dropped, to resume after it", self._before)
            run = trainer.sess.make_callable(self._ops)
            variables = saveable_variables(trainer.graph)
            values = trainer.sess.run(variables)
            for _ in range(self._before):
                run()
            # A random op may run after an update of a variable, which then is made again.
            assign_values(trainer.sess, zip(variables, values, strict=True))

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """End the training after a signal; the hooks save its checkpoint when it ends.

        Raises:
            Preempted, KeyboardInterrupt: after SIGTERM; after Ctrl-C.
        """
        signum = trainer.loop.stop.signum
        if signum is not None:
            where = f"train again to resume from the checkpoint in {self.folder.parent}"
            message = f"{signal.Signals(signum).name} ended the training; {where}"
            logger.log(logging.DEBUG if signum == signal.SIGINT else logging.WARNING, "%s", message)
            raise tpk.Preempted.by(signum, message)

    def write(self, global_step: int) -> None:
        """Record the number of steps for a checkpoint that is about to be saved."""
        self._known[str(global_step)] = self._before + self.trainer.global_step - self._first_step
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, json.dumps(self._known).encode())

    def forget(self) -> None:
        """Remove the file, so that the next training starts its input again; the log stays."""
        self._path.unlink(missing_ok=True)


class _WriteSteps(tf.compat.v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Writes the number of steps before each checkpoint, so that a kill leaves no checkpoint without it."""

    def __init__(self, point: ResumePoint) -> None:
        self._point = point

    def before_save(self, session: Any, global_step: Any) -> None:
        self._point.write(int(global_step))


def step_of_latest(directory: Any) -> int | None:
    """Return the global step of the latest checkpoint in a directory; None if there is none."""
    path = tf.train.latest_checkpoint(str(directory))
    if path is None:
        return None
    return int(tf.train.load_variable(path, tf.compat.v1.GraphKeys.GLOBAL_STEP))


def _random_ops(train_op: Any) -> list[Any]:
    """Return the ops of a step that count how many numbers they have drawn."""
    return [op for op in tpk.graph.ops_run_for(train_op) if op.op_def.is_stateful and "seed2" in _attributes(op)]


def _attributes(op: Any) -> set[str]:
    return {attribute.name for attribute in op.op_def.attr}
