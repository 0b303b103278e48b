"""The reference of the command line, from the commands themselves."""

import click

from tpk.cli.main import tpk


def reference():
    """Return what each command says of itself, as Markdown."""
    return "\n".join(help_of(context) for context in commands(click.Context(tpk, info_name="tpk")))


def commands(context):
    """Yield a context for a command and each of its subcommands, at any depth."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            yield from commands(click.Context(command, parent=context, info_name=name))


def help_of(context):
    context.max_content_width = context.terminal_width = 96
    level = min(context.command_path.count(" "), 2) + 2
    return f"{'#' * level} {context.command_path}\n\n```text\n{context.command.get_help(context).strip()}\n```\n"
