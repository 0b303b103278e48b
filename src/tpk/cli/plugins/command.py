"""``tpk plugins``: what can be named, what it is, and a start for one's own."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tpk.cli.framework import examples, json_option

KINDS = ("callback", "monitor", "strategy", "trainer", "plugin")
TEMPLATE_KINDS = KINDS[:-1]


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "tpk plugins --kind callback",
        "tpk plugins --check --json",
        "tpk plugins show ModelSaver",
        "tpk plugins new cost-curve --kind monitor",
    ),
)
@click.option("--kind", type=click.Choice(KINDS), help="Only plugins of this kind.")
@click.option(
    "--check", is_flag=True, help="Import each of them, in another process; the exit status is 1 if one fails."
)
@json_option
@click.pass_context
def plugins(context: click.Context, kind: str | None, check: bool, as_json: bool) -> int:
    """List, show and create plugins.

    Without COMMAND: list the plugins that can be named, without importing any.
    """
    if context.invoked_subcommand is not None:
        if kind or check or as_json:
            raise click.UsageError(f"options of {context.invoked_subcommand!r} stand after it; these are of the list.")
        return 0
    from tpk.cli.plugins.listing import list_plugins

    return list_plugins(kind, check=check, as_json=as_json)


def _names(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the names of plugins that begin so, for a shell."""
    from tpk.plugin.catalog import get_catalog

    entries = get_catalog().entries(context.params.get("kind"))
    return [CompletionItem(entry.name, help=entry.kind) for entry in entries if entry.name.startswith(begun)]


@plugins.command(epilog=examples("tpk plugins show ModelSaver", "tpk plugins show my_callbacks:Shouting"))
@click.argument("name", shell_complete=_names)
@click.option("--kind", type=click.Choice(KINDS), help="Needed if two kinds have the name.")
def show(name: str, kind: str | None) -> int:
    """Import one plugin, and show what it is, takes and does.

    NAME is one of the list, or "module:attr".
    """
    from tpk.cli.plugins.show import show_plugin

    return show_plugin(name, kind)


@plugins.command(epilog=examples("tpk plugins new cost-curve", "tpk plugins new tpk-mine --kind strategy"))
@click.argument("name")
@click.option("--kind", type=click.Choice(TEMPLATE_KINDS), default="callback", show_default=True, help="What it is.")
@click.option(
    "--directory", type=click.Path(path_type=Path), default=Path(), help="Where to write it.  [default: here]"
)
def new(name: str, kind: str, directory: Path) -> int:
    """Write a package with a plugin to start from, and its tests.

    NAME is that of the package, and of the plugin in it.
    """
    from tpk.cli.plugins.new import write_package

    return write_package(name, kind, directory)
