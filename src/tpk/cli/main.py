"""The entry point of the ``tpk`` command, and its arguments."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tpk import __version__
from tpk.cli.checkpoint.command import add_checkpoint_command
from tpk.cli.data_speed import add_data_speed_command
from tpk.cli.export.command import add_export_command
from tpk.cli.launch.command import add_launch_command
from tpk.cli.listing import list_plugins
from tpk.cli.new import TEMPLATE_KINDS, write_package
from tpk.cli.show import show_plugin
from tpk.errors import TpkError
from tpk.plugin.entry import GROUPS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the arguments after ``tpk``; by default those of the process.

    Returns:
        The exit status: 0 if all is well, 1 after an error, which stands on stderr in one line; ``tpk checkpoint``
        and ``tpk launch`` have exit statuses of their own.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        if arguments.command is None:
            parser.print_help()
            status = 0
        else:
            status = arguments.run(arguments)
        sys.stdout.flush()
    except TpkError as error:
        print("tpk:", " ".join(str(error).split()), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has had enough of it (`tpk plugins | head`); the interpreter must not flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _plugins(arguments: argparse.Namespace) -> int:
    if arguments.action == "show":
        return show_plugin(arguments.name, arguments.kind)
    if arguments.action == "new":
        return write_package(arguments.name, arguments.template, arguments.directory)
    return list_plugins(arguments.kind, check=arguments.check, as_json=arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tpk", description="Train anything that runs in a loop.")
    parser.add_argument("--version", action="version", version=f"tpk {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    plugins = commands.add_parser(
        "plugins",
        help="list, show and create plugins",
        description="Without ACTION: list the plugins that can be named, without importing any.",
    )
    plugins.set_defaults(run=_plugins)
    plugins.add_argument("--kind", choices=GROUPS, help="only plugins of this kind")
    plugins.add_argument("--check", action="store_true", help="import each of them, in a process of its own")
    plugins.add_argument("--json", action="store_true", help="write JSON")
    actions = plugins.add_subparsers(dest="action", metavar="ACTION")
    show = actions.add_parser("show", help="import one plugin, and show what it is, takes and does")
    show.add_argument("name", help='a name in the list, or "module:attr"')
    show.add_argument("--kind", choices=GROUPS, default=argparse.SUPPRESS, help="needed if two kinds have the name")
    new = actions.add_parser("new", help="write a package with a plugin to start from, and its tests")
    new.add_argument("name", help="the name of the package, and of the plugin in it")
    new.add_argument("--kind", dest="template", choices=TEMPLATE_KINDS, default="callback")
    new.add_argument("--directory", type=Path, default=Path(), help="where to write it; by default here")
    add_checkpoint_command(commands)
    add_data_speed_command(commands)
    add_launch_command(commands)
    add_export_command(commands)
    return parser
