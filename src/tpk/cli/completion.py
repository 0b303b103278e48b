"""``tpk completion``: what a shell runs to complete the command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tpk.cli.framework import COMPLETION_VARIABLE, examples

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples(
        "tpk completion fish > ~/.config/fish/completions/tpk.fish  # once",
        'eval "$(tpk completion bash)"                              # in ~/.bashrc',
        'eval "$(tpk completion zsh)"                               # in ~/.zshrc',
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Write the script by which a shell completes tpk.

    It completes commands, options, and names of plugins. Bash needs version 4.4 or newer.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "tpk", COMPLETION_VARIABLE).source())
    return 0
