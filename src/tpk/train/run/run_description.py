"""Descriptions of a run: for ``config.json``, and to compare it with other processes and with a resumed run."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk import __version__
from tpk.input_source.base import InputCallback
from tpk.plugin.recorded_options import described, options_of
from tpk.plugin.run_settings import FOREVER
from tpk.train.epoch import batch_of
from tpk.train.run.names import is_own_command

_GIT_TIMEOUT = 2.0


def describe_run(trainer: tpk.Trainer, callbacks: Iterable[Any], monitors: Iterable[Any]) -> dict[str, Any]:
    """Return a description of a run that is about to start, as plain data. Each plugin has its name and its options.

    Args:
        trainer: the trainer.
        callbacks: its callbacks, resolved; the callbacks of the input source are ignored.
        monitors: its monitors, resolved.
    """
    strategy = trainer.strategy
    run: dict[str, Any] = {"trainer": described(trainer)}
    if strategy.builds_towers:
        options = {**options_of(strategy), **described(strategy.describe())}
        run["strategy"] = {"name": type(strategy).__name__, "options": options}
        run |= {"devices": list(strategy.devices), "num_replicas": strategy.num_replicas}
    run |= {"world_size": strategy.world_size, **described(trainer.options)}
    own = [each for each in callbacks if not isinstance(each, InputCallback)]
    run |= {"callbacks": list(map(described, own)), "monitors": list(map(described, monitors))}
    loop = trainer.loop
    run |= {"steps_per_epoch": loop.steps_per_epoch, "seed": trainer.graph.seed, "starting_epoch": loop.starting_epoch}
    run["max_epoch"] = None if loop.max_epoch == FOREVER else loop.max_epoch
    source = trainer.input_source
    if source is not None:
        run |= {"input": described(source), "batch_size": batch_of(source)[0]}
        run["signature"] = list(map(described, source.signature))
    git = git_state(script_directory())
    return {
        **run,
        "argv": list(sys.argv),
        "versions": {
            "tpk": __version__,
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "numpy": np.__version__,
        },
        **({} if git is None else {"git": git}),
    }


def shared_facts(trainer: tpk.Trainer) -> dict[str, Any]:
    """Return the properties of a trainer and its strategy that must be equal in all processes, as plain data."""
    strategy = trainer.strategy
    facts: dict[str, Any] = {"trainer": type(trainer).__name__}
    if strategy.builds_towers:
        facts |= {"strategy": type(strategy).__name__, **strategy.describe(), "num_replicas": strategy.num_replicas}
    return {**facts, **trainer.options}


def run_facts(trainer: tpk.Trainer) -> dict[str, Any]:
    """Return the properties of a run that should be unchanged when it is resumed."""
    shared = shared_facts(trainer)
    kept = ("trainer", "strategy", "num_replicas", "precision")
    facts = {
        "steps_per_epoch": trainer.loop.steps_per_epoch,
        "seed": trainer.graph.seed,
        "world_size": trainer.strategy.process_group.world_size,
    }
    return {**facts, **{name: shared[name] for name in kept if name in shared}}


def script_directory() -> Path:
    """Return the directory of the running script; in a notebook or the command ``tpk``, the current directory."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return Path.cwd() if script is None or is_own_command(script) else Path(script).resolve().parent


def git_state(directory: Path) -> dict[str, Any] | None:
    """Return the checked-out commit of the Git repository of a directory, and whether tracked files differ from it.

    Returns:
        ``commit`` and ``is_dirty``; None without a repository, a commit or Git, or if Git does not answer in time.
    """
    # This command does not write to the index, and does not start programs of the repository.
    command = ["git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        answer = subprocess.check_output(
            command,
            cwd=directory,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = answer.decode(errors="replace").splitlines()
    commits = [line.rpartition(" ")[2] for line in lines if line.startswith("# branch.oid ")]
    if not commits or not commits[0].isalnum():
        return None
    return {"commit": commits[0], "is_dirty": any(not line.startswith("#") for line in lines)}
