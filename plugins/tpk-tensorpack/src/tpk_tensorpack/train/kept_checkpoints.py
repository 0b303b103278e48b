"""Checkpoints of another training run that are in the log directory."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import tpk
from tpk.durable_files import free_name
from tpk.plugin import RunSettings

logger = logging.getLogger(__name__)

_OF_A_CHECKPOINT = re.compile(
    r"state-(?P<state>\d+)\.json|[\w.+-]+-(?P<step>\d+)(\.\d+)?\.(index|meta|data-\d+-of-\d+)"
)


class SharedDirectory(tpk.Callback):
    """Allow a new training run to start in the log directory of another run."""

    def configure_run(self, run: RunSettings) -> None:
        """Accept a directory that contains a run."""
        self._is_new = run.resume == "never"
        run.may_hold_run = True

    @tpk.hookimpl(tryfirst=True)
    def before_train(self, trainer: tpk.Trainer) -> None:
        """Move the checkpoints of the other run."""
        if trainer.run_dir is not None and self._is_new:
            set_checkpoints_aside(trainer.run_dir, trainer.global_step)


def set_checkpoints_aside(directory: Path, step: int) -> None:
    """Move checkpoints of later steps than `step` to a directory ``kept-<n>``.

    Otherwise the training run that starts at `step` would overwrite some of them, and a later run would resume from
    others. Earlier checkpoints are left in place, because this run may have started from one of them. The moved
    checkpoints are complete.

    Args:
        directory: the log directory.
        step: the global step at which the training run starts; 0 means that all checkpoints belong to another run.
    """
    names = set(os.listdir(directory))
    later = sorted(
        name
        for name in names
        if (match := _OF_A_CHECKPOINT.fullmatch(name))
        and (int(match["state"] or match["step"]) > step or not step)
        # The file name of a graph without values may end with the time, which looks like a step.
        and (not name.endswith(".meta") or name.removesuffix(".meta") + ".index" in names)
    )
    if not later:
        return
    folder = free_name(directory, "kept")
    folder.mkdir()
    prefixes = {name.removesuffix(".index") for name in later if name.endswith(".index")}
    pointers = [path.name for path in directory.glob("checkpoint*") if path.is_file() and _pointed_to(path) & prefixes]
    # Move the states first: a partly moved checkpoint must not look complete.
    for name in sorted(pointers) + sorted(later, key=lambda name: not name.startswith("state-")):
        os.replace(directory / name, folder / name)
    logger.info("this training starts at step %d; checkpoints of later steps were moved to %s", step, folder)


def _pointed_to(pointer: Path) -> set[str]:
    return {os.path.basename(path) for path in re.findall(r'_paths?: "(.*)"', pointer.read_text(errors="replace"))}
