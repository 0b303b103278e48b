"""Names of the files that describe a run, and the command that resumes it. Needs no TensorFlow."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath

CONFIG_NAME = "config.json"
"""How it was configured, for people and programs to read."""

RUN_FILE_NAME = "config.toml"
"""What ``tpk train`` repeats it by."""

ATTEMPTS_NAME = "attempts.json"
"""How often it was started, and how each time ended."""


def is_own_command(script: str) -> bool:
    """Whether the path of a script is that of ``tpk`` as it is installed, or as ``python -m tpk`` runs it."""
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
