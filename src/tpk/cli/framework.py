"""The parts that all subcommands of ``tpk`` share.

A subcommand is a `click.Command` in its own file. The table in `tpk.cli.main` names it, and it is imported when it
is called or listed. To keep ``tpk --help`` and completion fast, such a file imports NumPy, TensorFlow, and modules that
need them inside its function.

A command writes to stdout and returns its exit status: 0 for success, 1 for failure. A `TpkError` becomes one line on
stderr and status 1; a `click.UsageError` becomes status 2.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Mapping
from typing import Any

import click

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


def examples(*lines: str) -> str:
    """Return the `epilog` of a command's help: example commands."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they are needed.

    Args:
        targets: the ``"module:attribute"`` of each subcommand by its name, in the order of the help.
        arguments: the arguments of `click.Group`.
    """

    def __init__(self, *, targets: Mapping[str, str], **arguments: Any) -> None:
        # From the names in `commands`, click suggests similar ones.
        names: Any = dict.fromkeys(targets)
        super().__init__(commands=names, **arguments)
        self._targets = targets

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return list(self._targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand; return None if the name is unknown."""
        target = self._targets.get(cmd_name)
        if target is None:
            return None
        command = pkgutil.resolve_name(target)
        assert isinstance(command, click.Command)
        return command


def quiet_tensorflow() -> None:
    """Keep TensorFlow from logging when it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # The message about oneDNN ignores the level.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
