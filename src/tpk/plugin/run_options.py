"""Options of a run, as callbacks may change them before anything is built."""

from __future__ import annotations

import os
from contextlib import ExitStack

import attrs


@attrs.define(kw_only=True)
class RunOptions:
    """What `Trainer.train` was asked for; `Callback.configure_run` changes it in place.

    Attributes:
        steps_per_epoch: how many steps an epoch has; known when callbacks see it.
        starting_epoch: the number of the first epoch.
        max_epoch: the number of the last epoch.
        run_dir: where the run keeps its files; None: nowhere.
        resume: ``"auto"``, ``"must"``, ``"never"`` or ``"keep"``.
        resources: closed when the training is over, after the log and all other files of the run.
    """

    steps_per_epoch: int
    starting_epoch: int
    max_epoch: int
    run_dir: str | os.PathLike[str] | None
    resume: str
    resources: ExitStack
