"""The parts that all subcommands of ``tpk`` share.

A subcommand is a `click.Command` in its own file. It is named by the table in `tpk.cli.main`, or by an entry point in
the group ``tpk.commands``, and imported when it is called or listed. To keep ``tpk --help`` and completion fast, such a
file imports NumPy, TensorFlow, and modules that need them inside its function.

A command writes to stdout and returns its exit status: 0 for success, 1 for failure. A `TpkError` becomes one line on
stderr and status 1; a `click.UsageError` becomes status 2.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Mapping
from typing import Any

import click

from tpk.errors import PluginError
from tpk.plugin.builtins import where_to_find
from tpk.plugin.catalog import get_catalog

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


class CommandGroup(LazyGroup):
    """The commands of ``tpk``: its own, which a package cannot replace, and the commands of installed packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        own = super().list_commands(ctx)
        usable = {entry.name for entry in get_catalog().entries("command") if entry.status != "blocked"}
        return [*own, *sorted(usable.difference(own))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if the name is unknown."""
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in self.list_commands(ctx):
            return _command_of_package(cmd_name)
        if command is None and not ctx.resilient_parsing and (advice := where_to_find(cmd_name)):
            ctx.fail(advice)
        return command


def _command_of_package(name: str) -> click.Command:
    """Import a command of a package; if that fails, the command raises the error, so that others can be listed."""

    def fail() -> None:
        raise failure

    try:
        entry = get_catalog().find("command", name)
        return check_command(entry, get_catalog().load(entry))
    except PluginError as error:
        failure = error
    everything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, everything, fail, short_help="FAILED: call it to see why.", add_help_option=False)


def check_command(entry: object, target: object) -> click.Command:
    """Return the target of an entry point in ``tpk.commands``.

    Raises:
        PluginError: if it is not a command.
    """
    if not isinstance(target, click.Command):
        raise PluginError(f"{entry} is {target!r}: an entry point of tpk.commands leads to a click.Command")
    return target


def quiet_tensorflow() -> None:
    """Keep TensorFlow from logging when it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # The message about oneDNN ignores the level.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
