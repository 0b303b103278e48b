"""Names: of the files in the directory of a run that describe it, and of the command. Needs no TensorFlow."""

from __future__ import annotations

from pathlib import PurePath

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
