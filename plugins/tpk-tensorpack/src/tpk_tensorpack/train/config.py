"""The configuration of a training run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tpk
from tpk.dataflow.base import flow_length
from tpk.plugin import also_spelled
from tpk_tensorpack.callbacks import (
    JSONWriter,
    MergeAllSummaries,
    MovingAverageSummary,
    ProgressBar,
    RunUpdateOps,
    ScalarPrinter,
    TFEventWriter,
)
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.train import older
from tpk_tensorpack.train.model_desc import ModelDescBase
from tpk_tensorpack.utils import logger

__all__ = ["DEFAULT_CALLBACKS", "DEFAULT_MONITORS", "AutoResumeTrainConfig", "TrainConfig"]


def DEFAULT_CALLBACKS() -> list[Any]:
    """Return the callbacks that are added to a training run by default."""
    return [MovingAverageSummary(), ProgressBar(), MergeAllSummaries(), RunUpdateOps()]


def DEFAULT_MONITORS() -> list[Any]:
    """Return the default monitors; without a log directory, leave out those that write files."""
    return monitors_in(logger.get_logger_dir())


def monitors_in(directory: str | os.PathLike[str] | None) -> list[Any]:
    """Return the default monitors for a log directory."""
    if directory is None:
        logger.warning("Without a log directory, TFEventWriter and JSONWriter cannot write anything.")
        return [ScalarPrinter()]
    return [TFEventWriter(), JSONWriter(), ScalarPrinter()]


@also_spelled({"dataset": "dataflow", "step_per_epoch": "steps_per_epoch"})
class TrainConfig(older.OlderConfig):
    """The configuration of a single-cost training run; it may be changed until the launch.

    Args:
        dataflow: a data flow; the trainer chooses its input source.
        data: an `InputSource`, instead of `dataflow`.
        model: a `ModelDesc`.
        callbacks: the callbacks.
        extra_callbacks: further callbacks after these; None for `DEFAULT_CALLBACKS`.
        monitors: the monitors; None for `DEFAULT_MONITORS`.
        session_creator: creates the session.
        session_config: the `tf.compat.v1.ConfigProto` of a new session, instead of `session_creator`.
        session_init: initializes the variables.
        starting_epoch: the number of the first epoch.
        steps_per_epoch: by default the length of the data.
        max_epoch: the number of the last epoch.
        nr_tower, tower, predict_tower, optimizer: for scripts of tensorpack 0.1 to 0.8; see `older.OlderConfig`.

    Raises:
        ConfigError: two alternative arguments are both given, an argument has the wrong type, or the number of steps
            per epoch is unknown.
    """

    def __init__(
        self,
        dataflow: Any = None,
        data: Any = None,
        model: Any = None,
        callbacks: list[Any] | None = None,
        extra_callbacks: list[Any] | None = None,
        monitors: list[Any] | None = None,
        session_creator: Any = None,
        session_config: Any = None,
        session_init: Any = None,
        starting_epoch: int = 1,
        steps_per_epoch: int | None = None,
        max_epoch: int = 99999,
        nr_tower: int | None = 1,
        tower: int | Sequence[int] | None = None,
        predict_tower: int | Sequence[int] | None = None,
        *,
        optimizer: Any = None,
    ) -> None:
        super().__init__(nr_tower, tower, predict_tower, optimizer)
        if dataflow is not None and data is not None:
            raise CheckError("TrainConfig takes either dataflow=<a data flow> or data=<an InputSource>")
        if data is not None and not isinstance(data, tpk.InputSource):
            raise CheckError(f"TrainConfig(data={data!r}): expected an InputSource. Use dataflow= for a data flow")
        if model is not None and not isinstance(model, ModelDescBase | tpk.ModelDesc):
            raise CheckError(f"TrainConfig(model={model!r}): expected an instance of a subclass of ModelDesc")
        if session_creator is not None and session_config is not None:
            raise CheckError(
                "TrainConfig takes either session_creator or session_config: pass the latter to the creator"
            )
        self.dataflow = dataflow
        self.data = data
        self.model = model
        self.callbacks = list(callbacks or ())
        self.extra_callbacks = extra_callbacks
        self.monitors = monitors
        self.session_creator = session_creator
        self.session_config = session_config
        self.session_init = session_init
        self.starting_epoch = int(starting_epoch)
        self.steps_per_epoch = _steps_of(dataflow if data is None else data, steps_per_epoch)
        self.max_epoch = int(max_epoch)

    def of_training(self) -> dict[str, Any]:
        """Return the arguments of `Trainer.train_with_defaults`."""
        names = ("session_creator", "session_config", "session_init", "steps_per_epoch", "starting_epoch", "max_epoch")
        return {name: getattr(self, name) for name in ("callbacks", "monitors", "extra_callbacks", *names)}


class AutoResumeTrainConfig(TrainConfig):
    """A `TrainConfig` that resumes from the checkpoint and epoch in the log directory, if there are any.

    Args:
        always_resume: whether they take precedence over `session_init` and `starting_epoch`; otherwise they only
            replace missing arguments.
        kwargs: the arguments of `TrainConfig`.
    """

    def __init__(self, always_resume: bool = True, **kwargs: Any) -> None:
        found = self.get_sessinit_resume()
        if found is not None and (always_resume or kwargs.get("session_init") is None):
            logger.info("Resuming from %s.", found)
            kwargs["session_init"] = found
        last = JSONWriter.load_existing_epoch_number()
        if last is not None and (always_resume or "starting_epoch" not in kwargs):
            logger.info("Found %s: starting with epoch %d.", JSONWriter.FILENAME, last + 1)
            kwargs["starting_epoch"] = last + 1
        super().__init__(**kwargs)

    @staticmethod
    def get_sessinit_resume(dir: str | None = None) -> str | None:
        """Return the path of the checkpoint in the log directory, or None.

        Args:
            dir: another directory to search.
        """
        directory = logger.get_logger_dir() if dir is None else dir
        path = None if directory is None else os.path.join(directory, "checkpoint")
        return path if path is not None and os.path.isfile(path) else None


def _steps_of(data: Any, given: int | None) -> int:
    if given is not None:
        return int(given)
    size = data.size if isinstance(data, tpk.InputSource) else flow_length(data)
    if size is None:
        what = "there is no data" if data is None else "the data has no length"
        raise CheckError(f"TrainConfig: {what}, so steps_per_epoch is unknown; pass it explicitly")
    return int(size)
