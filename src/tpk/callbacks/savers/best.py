"""Savers of the best model: the one for which a statistic is better than it ever was."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tpk.callbacks.savers.model import directory_of
from tpk.callbacks.statistics.statistic import Statistic, StatisticFollower
from tpk.checkpoint.directory import CheckpointDirectory
from tpk.checkpoint.series import check_on_failure
from tpk.checkpoint.variables import VariableWriter, take_snapshot
from tpk.checks import check_at_least
from tpk.errors import CheckpointError
from tpk.graph.variables import saveable_variables
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


@attrs.frozen
class _Saved:
    """A checkpoint, and the value for which it was saved."""

    value: float
    name: str


class MinSaver(StatisticFollower, Callback):
    """Saves the variables when a statistic is less than it ever was, or is among the least.

    The files are called ``min-<statistic>-<global step>``; the best is what
    ``tf.train.latest_checkpoint(directory, "checkpoint-min-<statistic>")`` returns. They hold variables only: to resume
    a training, have a `ModelSaver` besides. A value that is NaN is never the best, and of equal ones the first is. A
    statistic that nobody reports is an error after the first epoch, see
    `tpk.callbacks.statistics.statistic.StatisticCheck`.

    Args:
        monitor_stat: a statistic that the monitors know, such as ``"validation_error"``.
        keep: how many of the best to keep.
        filename: what the files are called in place of ``min-<statistic>``.
        checkpoint_dir: where to save; by default the `run_dir` of the trainer.
        on_failure: ``"raise"`` ends the training if a checkpoint cannot be written, ``"warn"`` logs it.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the training starts, if there is no
            directory.
        UnknownScalarError: in the training, if nobody reports the statistic.

    Example:
        ```python
        callbacks=[
            tpk.ModelSaver(),
            tpk.InferenceRunner(test_batches, tpk.ClassificationError()),
            tpk.MinSaver("validation_error", keep=3),
        ]
        ```
    """

    _word, _sign = "min", 1.0

    def __init__(
        self,
        monitor_stat: str,
        keep: int = 1,
        filename: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        *,
        on_failure: str = "raise",
    ) -> None:
        check_at_least(self, 1, keep=keep)
        self.statistic = Statistic(monitor_stat, reverse=self._sign < 0)
        self._keep = keep
        self._prefix = filename or f"{self._word}-{monitor_stat}"
        self._checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self._failing = check_on_failure(on_failure)
        self._best: list[_Saved] = []
        self._directory: CheckpointDirectory
        self._variables: list[Any] = []
        self._writer = VariableWriter()

    @property
    def checkpoint_dir(self) -> Path:
        """Where the checkpoints are.

        Raises:
            ConfigError: if there is no place for them.
        """
        return directory_of(self, self._checkpoint_dir)

    @property
    def best(self) -> list[tuple[float, Path]]:
        """The values and the paths of the checkpoints that are kept, the best first."""
        return [(saved.value, self._directory.path / saved.name) for saved in self._best]

    @property
    def best_checkpoint(self) -> Path | None:
        """Where the best model is; None before there is one."""
        return self.best[0][1] if self._best else None

    @property
    def state_key(self) -> str:
        """What tells it from other savers when a training is resumed."""
        return self._prefix if self._checkpoint_dir is None else str(self._checkpoint_dir / self._prefix)

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Get ready to save, once every other callback has added its variables."""
        self._directory = CheckpointDirectory(self.checkpoint_dir, self._prefix, f"checkpoint-{self._prefix}")
        self._directory.prepare()
        self._variables = saveable_variables(trainer.graph)

    @hookimpl(trylast=True)
    def trigger(self, trainer: TrainerProtocol) -> None:
        """Save if there is a new value and it is among the best, after all that may write the statistic."""
        value = self.statistic.take_new(trainer.monitors)
        if value is None or math.isnan(value):
            return
        if len(self._best) == self._keep and not self._is_better(value, self._best[-1].value):
            return
        try:
            self._save(value)
        except CheckpointError as error:
            self._failing(error)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Let go of what it writes with."""
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the list of the best, and how much of the statistic has been looked at."""
        return {"best": [[saved.value, saved.name] for saved in self._best], "statistic": self.statistic.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back the list of the best; later files are removed, and those that are gone are left out."""
        self.statistic.load_state_dict(state["statistic"])
        known = self._directory.names()
        best = [_Saved(float(value), str(name)) for value, name in state["best"]]
        # An attempt that was killed may have removed a file for a better one that this attempt has yet to find.
        self._best = [saved for saved in best if saved.name in known][: self._keep]
        for saved in best:
            if saved.name not in known:
                logger.warning("%s is not there any more", self._directory.path / saved.name)
        kept = [saved.name for saved in self._best]
        self._point([each for each in known if each not in kept and self._directory.step_of(each) > self.global_step])

    def _save(self, value: float) -> None:
        self.trainer.checkpoints.before_saving()
        snapshot = take_snapshot(self.trainer.sess, self._variables)
        name = self._directory.write(self.global_step, lambda prefix: self._writer.write(prefix, snapshot), None)
        others = [saved for saved in self._best if saved.name != name]
        position = sum(not self._is_better(value, saved.value) for saved in others)
        ranked = [*others[:position], _Saved(value, name), *others[position:]]
        self._best, gone = ranked[: self._keep], ranked[self._keep :]
        self._point([saved.name for saved in gone])
        logger.debug("saved %s: %s is %.5g", name, self.statistic.name, value)
        self.trainer.checkpoints.announce(name)

    def _point(self, gone: Sequence[str]) -> None:
        self._directory.point_to([saved.name for saved in reversed(self._best)], gone)

    def _is_better(self, value: float, than: float) -> bool:
        return self._sign * value < self._sign * than


class MaxSaver(MinSaver):
    """Saves the variables when a statistic is greater than it ever was; else it is as `MinSaver`.

    The files are called ``max-<statistic>-<global step>``.
    """

    _word, _sign = "max", -1.0
