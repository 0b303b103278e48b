"""Resuming a killed training to the same bits: its training state, in a hidden folder of ``model_dir``.

The visible files are an Estimator's. With each of its checkpoints, one of tpk's goes to the folder, with the position
in the data. A training that ends in good order removes it, so the next one starts its input again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpk
from tpk.durable_files import replace_file
from tpk_estimator.model import Inputs

FOLDER = ".tpk"
_STEP_NAME = "saved_step"


class ResumePoint:
    """The training state of an Estimator's training.

    Args:
        inputs: the input of the training.
        model_dir: the directory of the Estimator.

    Attributes:
        callbacks: the callbacks that keep the state.
        listener: the listener that saves the state with each checkpoint of the Estimator.
    """

    def __init__(self, inputs: Inputs, model_dir: Any) -> None:
        self._folder = Path(model_dir, FOLDER)
        saver = _StateSaver(max_to_keep=2)
        self.callbacks = [_InputPosition(inputs), saver]
        self.listener = _SaveState(saver, self._folder / _STEP_NAME)

    @property
    def options(self) -> dict[str, Any]:
        """The options of `tpk.Trainer.train`: where it resumes."""
        if not self._is_current():
            self.forget()
        return {"run_dir": self._folder, "resume": "auto"}

    def forget(self) -> None:
        """Remove the state; the record of the run stays."""
        for pattern in ("checkpoint", "model-*", "state-*", _STEP_NAME):
            for path in self._folder.glob(pattern):
                path.unlink()

    def _is_current(self) -> bool:
        """Whether the newest checkpoint in `model_dir` is of the training that was killed.

        A kill may have come between the Estimator's checkpoint and tpk's: then the state is the one before.
        """
        visible, own = step_of_latest(self._folder.parent), step_of_latest(self._folder)
        saved = self._folder / _STEP_NAME
        return own is not None and visible in (own, int(saved.read_text()) if saved.exists() else None)


def step_of_latest(directory: Any) -> int | None:
    """Return the global step of the latest checkpoint in a directory; None if there is none."""
    path = tf.train.latest_checkpoint(str(directory))
    if path is None:
        return None
    return int(tf.train.load_variable(path, tf.compat.v1.GraphKeys.GLOBAL_STEP))


class _StateSaver(tpk.ModelSaver):
    """Saves the training state with the Estimator's checkpoints, and not at other times."""

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Do not save."""

    def save(self) -> None:
        """Request a checkpoint of this step, unless the training has ended."""
        loop = self.trainer.loop
        if loop.ended_by is None and loop.failure is None:
            super().trigger(self.trainer)


class _SaveState(tf.compat.v1.train.CheckpointSaverListener):
    """Saves the training state after each checkpoint of the Estimator."""

    def __init__(self, saver: _StateSaver, step_path: Path) -> None:
        self._saver = saver
        self._step_path = step_path

    def before_save(self, session: Any, global_step: Any) -> None:
        replace_file(self._step_path, str(global_step).encode())

    def after_save(self, session: Any, global_step: Any) -> None:
        self._saver.save()


class _InputPosition(tpk.Callback):
    """Counts the elements that the training has taken, and skips them in a resumed one."""

    chief_only = False

    def __init__(self, inputs: Inputs) -> None:
        self._ops = inputs.ops
        self._taken = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count the element of the step."""
        self._taken += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the number of elements taken."""
        return {"taken": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the elements again."""
        self._taken = state["taken"]
        for _ in range(self._taken):
            self.trainer.sess.run(self._ops)
