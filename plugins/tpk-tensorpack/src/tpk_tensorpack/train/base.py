"""The base class of all trainers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tpk
from tpk import StopTraining
from tpk.plugin import Progress
from tpk_tensorpack.callbacks.monitor import Monitors
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.tfutils.common import get_default_sess_config
from tpk_tensorpack.train import older
from tpk_tensorpack.train.config import DEFAULT_CALLBACKS, monitors_in
from tpk_tensorpack.train.kept_checkpoints import SharedDirectory
from tpk_tensorpack.utils import logger

__all__ = ["StopTraining", "Trainer"]

FOREVER = 9999999


class TrainLoop(tpk.TrainLoop):
    """The training loop, with counters under tensorpack's names."""

    @property
    def epoch_num(self) -> int:
        """The number of the current epoch."""
        return self.progress.epoch_num

    @property
    def local_step(self) -> int:
        """The number of the current step within the epoch, from 0."""
        return self.progress.local_step

    @property
    def global_step(self) -> int:
        """The number of completed runs of `hooked_sess`."""
        return self.progress.global_step


class RunsCounted(Progress):
    """Counters whose `global_step` counts the runs of the session, also those after the first one of a step."""

    __slots__ = ()

    def claim(self) -> int:
        """Return the number of steps that a run counts."""
        return super().claim() or 1


@older.takes_config
class Trainer(tpk.Trainer):
    """Train anything in a loop: subclasses set ``train_op`` or override ``run_step``; see `tpk.Trainer`.

    Output goes to the log directory of the script, next to existing files; without a log directory nothing is written.

    `global_step` counts the runs of `hooked_sess`: a step that runs it several times counts several times there, but
    once in `local_step`.

    Attributes:
        config: the `TrainConfig` that it was created from, or None; see `train.older`.
    """

    config: Any = None
    hooked_sess: Any = None
    _is_chief: bool | None = None

    def __init__(self) -> None:
        super().__init__()
        self.loop.__class__ = TrainLoop
        self.loop.progress.__class__ = RunsCounted

    @property
    def is_chief(self) -> bool:
        """Whether this process writes output; custom trainers may set it."""
        return super().is_chief if self._is_chief is None else self._is_chief

    @is_chief.setter
    def is_chief(self, is_chief: bool) -> None:
        self._is_chief = bool(is_chief)

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps per epoch."""
        return self.loop.steps_per_epoch

    @property
    def starting_epoch(self) -> int:
        """The number of the first epoch."""
        return self.loop.starting_epoch

    @property
    def max_epoch(self) -> int:
        """The number of the last epoch."""
        return self.loop.max_epoch

    def register_callback(self, cb: Any) -> None:
        """Add a callback, or a list of them, before the training starts; see `tpk.Trainer.register_callback`."""
        super().register_callback(list(flat([cb])))

    _register_callback = register_callback

    def setup_callbacks(self, callbacks: Sequence[Any] | None = (), monitors: Sequence[Any] | None = ()) -> None:
        """Register the callbacks and monitors; see `tpk.Trainer.setup_callbacks`."""
        super().setup_callbacks(callbacks, monitors)
        self.monitors.__class__ = Monitors

    def train(  # type: ignore[override]
        self,
        callbacks: Sequence[Any] | None = None,
        monitors: Sequence[Any] | None = None,
        session_creator: Any = None,
        session_init: Any = None,
        steps_per_epoch: int = 0,
        starting_epoch: int = 1,
        max_epoch: int = FOREVER,
        **options: Any,
    ) -> None:
        """Train with only these callbacks and monitors; see `tpk.Trainer.train`.

        Args:
            callbacks: the callbacks.
            monitors: the monitors, which receive the statistics.
            session_creator: creates the session; by default a new one with `get_default_sess_config()`, where each op
                has one thread.
            session_init: initializes the variables.
            steps_per_epoch: the number of steps per epoch.
            starting_epoch: the number of the first epoch.
            max_epoch: the number of the last epoch.
            options: further options of `tpk.Trainer.train`.
        """
        if callbacks is None and self.config is not None:
            older.train(self)
            return
        if session_creator is None and options.get("session_config") is None:
            options["session_config"] = get_default_sess_config()
        options.setdefault("run_dir", logger.get_logger_dir())
        with logged_by_script():
            super().train(
                callbacks=[*flat(callbacks or ()), SharedDirectory()],
                monitors=monitors,
                session_creator=session_creator,
                session_init=session_init,
                steps_per_epoch=steps_per_epoch,
                starting_epoch=starting_epoch,
                max_epoch=max_epoch,
                **options,
            )

    def initialize(self, session_creator: Any = None, session_init: Any = None) -> None:
        """Create the session and initialize the variables: a path restores everything, not only the weights."""
        super().initialize(session_creator, None if session_init is None else tpk.SmartInit(session_init))

    def _setup(self) -> None:
        """Build the graph of a trainer created from a `TrainConfig`; trainers of older scripts override it."""

    def train_with_defaults(  # type: ignore[override]
        self,
        _sentinel: Any = None,
        callbacks: Sequence[Any] | None = None,
        monitors: Sequence[Any] | None = None,
        session_creator: Any = None,
        session_init: Any = None,
        steps_per_epoch: int | None = None,
        starting_epoch: int = 1,
        max_epoch: int = FOREVER,
        extra_callbacks: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:
        """Like `train`, but with the default monitors, and with the default callbacks after the given ones.

        Args:
            _sentinel: must not be given; use keyword arguments.
            callbacks: as for `train`.
            monitors: by default `DEFAULT_MONITORS`.
            session_creator: as for `train`.
            session_init: as for `train`.
            steps_per_epoch: as for `train`.
            starting_epoch: as for `train`.
            max_epoch: as for `train`.
            extra_callbacks: by default `DEFAULT_CALLBACKS`.
            options: as for `train`.
        """
        if _sentinel is not None:
            raise CheckError("train_with_defaults takes keyword arguments only, such as callbacks=")
        self.train(
            [*(callbacks or ()), *(DEFAULT_CALLBACKS() if extra_callbacks is None else extra_callbacks)],
            monitors_in(options.get("run_dir", logger.get_logger_dir())) if monitors is None else monitors,
            session_creator,
            session_init,
            steps_per_epoch or 0,
            starting_epoch,
            max_epoch,
            **options,
        )


def flat(callbacks: Iterable[Any]) -> Iterator[Any]:
    """Yield the callbacks in nested lists, without None."""
    for each in callbacks:
        if isinstance(each, list | tuple):
            yield from flat(each)
        elif each is not None:
            yield each


@contextmanager
def logged_by_script() -> Iterator[None]:
    """Within the context, write tpk's log messages to the log of the script."""
    log, of_script = logging.getLogger("tpk"), logging.getLogger("tpk_tensorpack")
    added = [handler for handler in of_script.handlers if handler not in log.handlers]
    for handler in added:
        log.addHandler(handler)
    try:
        yield
    finally:
        for handler in added:
            log.removeHandler(handler)
