"""Checkpoints that another training has left in the log directory."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import tpk
from tpk.durable_files import free_name
from tpk.plugin.trainer import RunOptions, TrainerProtocol

logger = logging.getLogger(__name__)

_OF_A_CHECKPOINT = re.compile(
    r"state-(?P<state>\d+)\.json|[\w.+-]+-(?P<step>\d+)(\.\d+)?\.(index|meta|data-\d+-of-\d+)"
)


class SharedDirectory(tpk.Callback):
    """Lets a training that is not resumed start in a log directory that holds another one."""

    def configure_run(self, run: RunOptions) -> None:
        """Accept a directory that holds a run."""
        self._is_new = run.resume == "never"
        run.may_hold_run = True

    @tpk.hookimpl(tryfirst=True)
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Move the checkpoints of the other training."""
        if trainer.run_dir is not None and self._is_new:
            set_checkpoints_aside(trainer.run_dir, trainer.global_step)


def set_checkpoints_aside(directory: Path, step: int) -> None:
    """Move checkpoints of later steps than `step` into a folder ``kept-<n>``.

    The training that starts at that step would mix them up with its own: it would overwrite some, and a later one
    would resume from others. Earlier ones stay, because this training may have started from one of them. The moved
    checkpoints are complete.

    Args:
        directory: the log directory.
        step: the global step at which the training starts; if it is 0, all checkpoints belong to another training.
    """
    names = set(os.listdir(directory))
    later = sorted(
        name
        for name in names
        if (match := _OF_A_CHECKPOINT.fullmatch(name))
        and (int(match["state"] or match["step"]) > step or not step)
        # The name of a graph without values may end with the time, which looks like a step.
        and (not name.endswith(".meta") or name.removesuffix(".meta") + ".index" in names)
    )
    if not later:
        return
    folder = free_name(directory, "kept")
    folder.mkdir()
    prefixes = {name.removesuffix(".index") for name in later if name.endswith(".index")}
    pointers = [path.name for path in directory.glob("checkpoint*") if path.is_file() and _pointed_to(path) & prefixes]
    # States first: a checkpoint that is moved in part must not look complete.
    for name in sorted(pointers) + sorted(later, key=lambda name: not name.startswith("state-")):
        os.replace(directory / name, folder / name)
    logger.info("this training starts at step %d; checkpoints of later steps were moved to %s", step, folder)


def _pointed_to(pointer: Path) -> set[str]:
    return {os.path.basename(path) for path in re.findall(r'_paths?: "(.*)"', pointer.read_text(errors="replace"))}
