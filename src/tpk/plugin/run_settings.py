"""The settings of a run, which plugins may change before it starts."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any, TypeAlias

import attrs

StrPath: TypeAlias = str | os.PathLike[str]

FOREVER = 2**63 - 1
"""The `max_epoch`, or the `steps_per_epoch`, of a training run that ends by itself."""


@attrs.define
class RunSettings:
    """The settings of a run, from the arguments of `Trainer.train`; `Callback.configure_run` changes them in place.

    Attributes:
        steps_per_epoch: the number of steps in an epoch.
        starting_epoch: the number of the first epoch.
        max_epoch: the number of the last epoch.
        run_dir: the directory of the run; None for none.
        resume: ``"auto"``, ``"must"`` or ``"never"``.
        description: further contents of ``config.json``, which the trainer does not know.
        run_file: the text of ``config.toml``; empty for none.
        may_hold_run: whether a run that is not resumed may start in a directory that holds another one.
        resources: closed at the end of the run, after the log and all other files of the run.
    """

    steps_per_epoch: int
    starting_epoch: int
    max_epoch: int
    run_dir: StrPath | None
    resume: str
    description: dict[str, Any] = attrs.field(factory=dict)
    run_file: str = ""
    may_hold_run: bool = False
    resources: ExitStack = attrs.field(factory=ExitStack, init=False)
