"""The entry point of the ``tpk`` command."""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from tpk import __version__
from tpk.cli.framework import SETTINGS, CommandGroup, examples
from tpk.errors import TpkError, keeps_tracebacks, shorten

COMMANDS = {
    "train": "tpk.cli.train:train",
    "runs": "tpk.cli.runs.run_table:runs",
    "show": "tpk.cli.runs.showing:show",
    "plot": "tpk.cli.runs.plotting:plot",
    "checkpoint": "tpk.cli.checkpoint_command:checkpoint",
    "export": "tpk.cli.export_command:export",
    "data-speed": "tpk.cli.data_speed:data_speed",
    "plugins": "tpk.cli.plugins.plugin_table:plugins",
    "doctor": "tpk.cli.doctor:doctor",
}
"""The commands of tpk itself."""

_COMPLETION = "_TPK_COMPLETE"
"""The environment variable with which a shell asks for completion; click defines its values."""

_INTERRUPTED = 130


@click.group(
    cls=CommandGroup,
    targets=COMMANDS,
    invoke_without_command=True,
    context_settings=SETTINGS,
    epilog=examples(
        "tpk COMMAND --help                        # options and examples",
        'eval "$(_TPK_COMPLETE=bash_source tpk)"   # completion in bash; or zsh_source, fish_source',
    )
    + "\n\nThe exit status is 0 for success, 1 for failure, and 2 for wrong usage.",
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
        argv: the arguments after ``tpk``; by default the arguments of the process.

    Returns:
        The exit status: 0 for success; 1 for an error, which is one line on stderr, below the frames of the user's
        code; 2 for an unknown command or option; 130 after Ctrl-C. ``tpk checkpoint diff`` and commands of packages
        define more.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # `Command.main` would handle an EOFError or a broken pipe in the user's code as if it were the terminal's.
    try:
        if _COMPLETION in os.environ:
            return shell_complete(tpk, {}, "tpk", _COMPLETION, os.environ[_COMPLETION])
        with tpk.make_context("tpk", arguments) as context:
            status = tpk.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except TpkError as error:
        shorten(error)
        if keeps_tracebacks():
            raise
        traceback.print_tb(error.__traceback__)
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        print("tpk:", " ".join(f"{error}{notes}".split()), file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        print("tpk:", str(error) or "interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        if _has_reader():
            raise
        # The reader has stopped (`tpk plugins | head`); the interpreter must not flush the output again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return int(status or 0)


def _has_reader() -> bool:
    """Whether the other end of stdout is open; False if the system cannot tell."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return not poll.poll(0)
