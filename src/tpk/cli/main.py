"""The entry point of the ``tpk`` command, and the table of its subcommands."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from tpk import __version__
from tpk.cli.framework import COMPLETION_VARIABLE, SETTINGS, LazyGroup, examples
from tpk.errors import TpkError

COMMANDS = {
    "train": "tpk.cli.train:train",
    "launch": "tpk.cli.launch.command:launch",
    "runs": "tpk.cli.runs.command:runs",
    "show": "tpk.cli.runs.command:show",
    "plot": "tpk.cli.runs.command:plot",
    "board": "tpk.cli.runs.command:board",
    "checkpoint": "tpk.cli.checkpoint.command:checkpoint",
    "export": "tpk.cli.export.command:export",
    "data-speed": "tpk.cli.data_speed:data_speed",
    "plugins": "tpk.cli.plugins.command:plugins",
    "doctor": "tpk.cli.doctor.command:doctor",
    "completion": "tpk.cli.completion:completion",
}

_INTERRUPTED = 130


@click.group(
    cls=LazyGroup,
    targets=COMMANDS,
    invoke_without_command=True,
    context_settings=SETTINGS,
    epilog=examples(
        "tpk COMMAND --help                     # options, and examples",
        'eval "$(tpk completion bash)"          # completion in this shell; zsh and fish, too',
    )
    + "\n\nThe exit status is 0 if all is well, 1 if something failed, and 2 if the command was called in a wrong way.",
)
@click.version_option(__version__, prog_name="tpk", message="%(prog)s %(version)s")
@click.pass_context
def tpk(context: click.Context) -> int:
    """Train anything that runs in a loop."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the arguments after ``tpk``; by default those of the process.

    Returns:
        The exit status: 0 if all is well; 1 after an error, which stands on stderr in one line; 2 if there is no such
        command or option; 130 after Ctrl-C. ``tpk launch`` and ``tpk checkpoint diff`` have further ones.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Not by `Command.main`, which takes an EOFError or a broken pipe in the user's own code for those of a terminal.
    try:
        if COMPLETION_VARIABLE in os.environ:
            return shell_complete(tpk, {}, "tpk", COMPLETION_VARIABLE, os.environ[COMPLETION_VARIABLE])
        with tpk.make_context("tpk", arguments) as context:
            status = tpk.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except TpkError as error:
        print("tpk:", " ".join(str(error).split()), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tpk: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        if _has_reader():
            raise
        # Whoever read our output had enough of it (`tpk plugins | head`); the interpreter must not flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return int(status or 0)


def _has_reader() -> bool:
    """Whether somebody still reads what is written to stdout, as far as this system can tell."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return not poll.poll(0)
