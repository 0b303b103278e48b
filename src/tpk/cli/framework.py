"""Subcommands of ``tpk``: what all of them are made of.

A subcommand is a `click.Command` in a file of its own, which stands in the table of `tpk.cli.main`, and is imported
when it is called, or named in a list. So that ``tpk --help`` and the completion of a shell stay quick, such a file
imports at its top nothing but the standard library, `click`, this module and `tpk.errors`; its function imports what
does the work. It writes to stdout, and returns the exit status: 0 if all is well, 1 if not; or raises a `TpkError`,
which becomes one line on stderr and the status 1. For wrong usage, `click.UsageError` gives the status 2.
"""

from __future__ import annotations

import difflib
import os
import pkgutil
from collections.abc import Mapping
from typing import Any

import click

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

COMPLETION_VARIABLE = "_TPK_COMPLETE"
"""The environment variable by which a shell asks for completion; what it holds is `click`'s business."""

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


def examples(*lines: str) -> str:
    """Return what stands below the help of a command, its `epilog`: `lines` as they would be typed."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class LazyGroup(click.Group):
    """A command of subcommands, each of which is imported when it is needed.

    Args:
        targets: ``"module:attribute"`` of each subcommand by its name, in the order in which they are listed.
        arguments: those of `click.Group`.
    """

    def __init__(self, *, targets: Mapping[str, str], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._targets = targets

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return list(self._targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand of a name; None if there is none."""
        target = self._targets.get(cmd_name)
        if target is None:
            return None
        command = pkgutil.resolve_name(target)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand that is called.

        Raises:
            UsageError: if there is none of that name.
        """
        name = args[0]
        if name in self._targets or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self._targets, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(self._targets)}."
        raise click.UsageError(f"there is no command {name!r}. {hint}", ctx)


def quiet_tensorflow() -> None:
    """Keep TensorFlow, before it is imported, from saying about itself what was not asked for."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # It says it about oneDNN whatever the level.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
