"""Names of the files that describe a run, and the command that resumes it. Needs no TensorFlow."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath

CONFIG_NAME = "config.json"
"""The configuration of the run, for people and programs to read."""

RUN_FILE_NAME = "config.toml"
"""The file from which ``tpk train`` repeats the run."""

ATTEMPTS_NAME = "attempts.json"
"""The times at which the run was started, and how each of them ended."""


def is_own_command(script: str) -> bool:
    """Return whether a script is the command ``tpk``, as it is installed or as ``python -m tpk`` runs it."""
    path = PurePath(script)
    return path.stem == "tpk" or path.parts[-2:] == ("tpk", "__main__.py")


def how_to_resume(run_dir: Path, argv: Sequence[str]) -> str:
    """Return how to resume a training: a command, the options of its script, or the arguments of `train`."""
    if list(argv[1:2]) == ["train"] and is_own_command(argv[0]):
        return f"tpk train {shlex.quote(str(run_dir / RUN_FILE_NAME))} --resume"
    given = {argument.split("=")[0] for argument in argv}
    if given & {"--run-dir", "--resume"}:
        return f"--run-dir {run_dir} --resume auto"
    return f'run_dir="{run_dir}", resume="auto"'
