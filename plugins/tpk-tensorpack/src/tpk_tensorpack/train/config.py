"""Configuration of a training."""

from __future__ import annotations

import os
from typing import Any

import tpk
from tpk.errors import ConfigError
from tpk_tensorpack.callbacks import (
    JSONWriter,
    MergeAllSummaries,
    MovingAverageSummary,
    ProgressBar,
    RunUpdateOps,
    ScalarPrinter,
    TFEventWriter,
)
from tpk_tensorpack.train import older
from tpk_tensorpack.train.model_desc import ModelDescBase
from tpk_tensorpack.utils import logger

__all__ = ["DEFAULT_CALLBACKS", "DEFAULT_MONITORS", "AutoResumeTrainConfig", "TrainConfig"]


def DEFAULT_CALLBACKS() -> list[Any]:
    """Return the callbacks that every training has besides its own, unless it names others."""
    return [MovingAverageSummary(), ProgressBar(), MergeAllSummaries(), RunUpdateOps()]


def DEFAULT_MONITORS() -> list[Any]:
    """Return the monitors that a training has unless it names others; none where the script logs to no directory."""
    return monitors_in(logger.get_logger_dir())


def monitors_in(directory: str | os.PathLike[str] | None) -> list[Any]:
    """Return the monitors that a training has in a directory unless it names others."""
    if directory is None:
        logger.warning("The script logs to no directory: TFEventWriter and JSONWriter would have nowhere to write.")
        return [ScalarPrinter()]
    return [TFEventWriter(), JSONWriter(), ScalarPrinter()]


@older.takes_older_options
class TrainConfig(older.OlderConfig):
    """How a single-cost model is trained; any of it may be changed before it is launched.

    Args:
        dataflow: a data flow; the trainer chooses how it enters the graph.
        data: an `InputSource`, in its place.
        model: a `ModelDesc`.
        callbacks: what happens besides training.
        extra_callbacks: called after those; by default `DEFAULT_CALLBACKS`.
        monitors: by default `DEFAULT_MONITORS`.
        session_creator: where the session comes from.
        session_config: the `tf.compat.v1.ConfigProto` of a new session, in its place.
        session_init: what gives variables their values.
        starting_epoch: the number of the first epoch.
        steps_per_epoch: by default as many as the data has datapoints.
        max_epoch: the number of the last epoch.

    Raises:
        ConfigError: there are both of `dataflow` and `data`, or of the two about the session; one of them is of another
            kind; or nothing says how many steps an epoch has.
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
    ) -> None:
        if dataflow is not None and data is not None:
            raise ConfigError("TrainConfig takes either dataflow=<a data flow> or data=<an InputSource>")
        if data is not None and not isinstance(data, tpk.InputSource):
            raise ConfigError(f"TrainConfig(data={data!r}): expected an InputSource. Write dataflow= for a data flow")
        if model is not None and not isinstance(model, ModelDescBase | tpk.ModelDesc):
            raise ConfigError(f"TrainConfig(model={model!r}): expected an instance of a class derived from ModelDesc")
        if session_creator is not None and session_config is not None:
            raise ConfigError("TrainConfig takes either session_creator or session_config: give that to the creator")
        self.dataflow = dataflow
        self.data = data
        self.model = model
        self.callbacks = list(callbacks or ())
        self._extra_callbacks = extra_callbacks
        self._monitors = monitors
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

    @property
    def extra_callbacks(self) -> list[Any]:
        """The callbacks after those of the script."""
        return DEFAULT_CALLBACKS() if self._extra_callbacks is None else list(self._extra_callbacks)

    @extra_callbacks.setter
    def extra_callbacks(self, extra_callbacks: list[Any] | None) -> None:
        self._extra_callbacks = extra_callbacks

    @property
    def monitors(self) -> list[Any]:
        """The monitors."""
        return DEFAULT_MONITORS() if self._monitors is None else list(self._monitors)

    @monitors.setter
    def monitors(self, monitors: list[Any] | None) -> None:
        self._monitors = monitors


class AutoResumeTrainConfig(TrainConfig):
    """A `TrainConfig` that goes on with the checkpoint and the epoch that the log directory holds, if it holds any.

    Args:
        always_resume: whether these come before `session_init` and `starting_epoch`; else, only those that are not
            given are taken from there.
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
        """Return the path of the checkpoint in the log directory; None if there is none.

        Args:
            dir: where, if not there.
        """
        directory = logger.get_logger_dir() if dir is None else dir
        path = None if directory is None else os.path.join(directory, "checkpoint")
        return path if path is not None and os.path.isfile(path) else None


def _steps_of(data: Any, given: int | None) -> int:
    if given is not None:
        return int(given)
    if isinstance(data, tpk.InputSource):
        size = data.size
    else:
        try:
            size = len(data)
        except (TypeError, NotImplementedError):
            size = None
    if size is None:
        what = "there is no data" if data is None else "the data has no length"
        raise ConfigError(f"TrainConfig: {what}, so it does not tell steps_per_epoch; give that")
    return int(size)
