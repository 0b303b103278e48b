"""Steps that are looked at: the base of what looks at some steps, and leaves all others alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.durable_files import replace_file
from tpk.errors import ConfigError
from tpk.plugin import Callback
from tpk.plugin.progress import Progress

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


class LooksAtSteps(Callback, ABC):
    """Looks at some steps; the others cost one comparison of two numbers.

    A step has the number to which it brings `global_step`, in each of its runs of the session. Where one run makes
    several steps, it has that of the last, and is looked at if one of them is to be.

    A subclass says in `next_due` which steps it looks at, asks in ``before_run`` whether the one under way is due, and
    sets `due_at` anew once it has looked.

    Attributes:
        due_at: the number of the next step to look at.
    """

    def __init__(self) -> None:
        self.due_at: float = math.inf
        self._progress = Progress()
        self._steps_per_epoch = 0
        self._offset = 0

    @abstractmethod
    def next_due(self, step: int) -> float:
        """Return the number of the first step to look at after `step`."""

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Find out how steps are numbered, and which one is the first to look at."""
        self._progress, self._steps_per_epoch = trainer.loop.progress, trainer.loop.steps_per_epoch
        # A training that is resumed within an epoch has that epoch under way already.
        done = trainer.local_step + 1 if trainer.epoch_num == trainer.loop.starting_epoch else 0
        self._offset = trainer.global_step - done - trainer.loop.starting_epoch * self._steps_per_epoch + 1
        self.due_at = self.next_due(trainer.global_step)

    @property
    def step_under_way(self) -> int:
        """The number of the step under way: what `global_step` is when it has completed."""
        # Not by `global_step`, which has counted the step already when it runs the session once more; nor by what a
        # hook of the epoch notes, which is not called while `EnableCallbackIf` has the callback disabled.
        progress = self._progress
        return self._offset + progress.epoch_num * self._steps_per_epoch + progress.local_step


def file_in_run_dir(callback: Callback, name: str = "") -> Path:
    """Return the path of a file in the directory of the run that a callback belongs to, or that directory.

    Raises:
        ConfigError: if the run has none.
    """
    run_dir = callback.trainer.run_dir
    if run_dir is None:
        raise ConfigError(
            f"{type(callback).__name__} writes into the directory of the run, but this run has none (run_dir is None). "
            "Give the training a run_dir."
        )
    return Path(run_dir) / name


def write_file(path: Path, content: bytes) -> None:
    """Write a file of a run, whole or not at all."""
    replace_file(path, content, path.with_name(f".{path.name}.part"))


def check_period(callback: str, every_k_steps: Any) -> int:
    """Return `every_k_steps`.

    Raises:
        ConfigError: if it is no positive int.
    """
    if isinstance(every_k_steps, bool) or not isinstance(every_k_steps, int) or every_k_steps < 1:
        raise ConfigError(f"{callback}(every_k_steps={every_k_steps!r}): expected a positive whole number.")
    return every_k_steps
