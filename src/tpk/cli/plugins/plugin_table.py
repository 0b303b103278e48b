"""``tpk plugins``: the plugins that can be named."""

from __future__ import annotations

import ast
import importlib.util
import json
from functools import cache
from pathlib import Path

import attrs
import click

from tpk.cli.framework import LazyGroup, examples, json_option
from tpk.cli.table import print_table
from tpk.plugin.catalog import GROUPS, get_catalog


@click.group(
    cls=LazyGroup,
    targets={"show": "tpk.cli.plugins.show:show", "new": "tpk.cli.plugins.new:new"},
    invoke_without_command=True,
    epilog=examples(
        "tpk plugins --kind callback",
        "tpk plugins --check --json",
        "tpk plugins show ModelSaver",
        "tpk plugins new cost-curve --kind monitor",
    ),
)
@click.option("--kind", type=click.Choice(list(GROUPS)), help="Only plugins of this kind.")
@click.option(
    "--check", is_flag=True, help="Import and check each in another process; the exit status is 1 if one fails."
)
@json_option
@click.pass_context
def plugins(context: click.Context, kind: str | None, check: bool, as_json: bool) -> int:
    """List, show and create plugins.

    Without COMMAND: list the plugins that can be named, without importing any.
    """
    if context.invoked_subcommand is not None:
        if kind or check or as_json:
            name = context.invoked_subcommand
            raise click.UsageError(f"write the options of {name!r} after it; options before it belong to the list.")
        return 0
    entries = sorted(get_catalog().entries(kind), key=lambda entry: (list(GROUPS).index(entry.kind), entry.name))
    problems: dict[int, str] = {}
    if check:
        from tpk.cli.plugins.check import check_imports

        checked = [place for place, entry in enumerate(entries) if entry.status != "blocked"]
        found = check_imports([entries[place] for place in checked])
        problems = {place: problem for place, problem in zip(checked, found, strict=True) if problem}
        for place in checked:
            if entries[place].status != "conflict":
                entries[place] = attrs.evolve(entries[place], status="failed" if place in problems else "ok")
    if as_json:
        rows = [
            {**attrs.asdict(entry), "description": summary_of(entry.target), "problem": problems.get(place)}
            for place, entry in enumerate(entries)
        ]
        print(json.dumps(rows, indent=2))
        return int(bool(problems))
    lines = []
    for entry in entries:
        origin = "tpk" if entry.is_builtin else f"{entry.distribution} {entry.version}"
        status = "" if entry.status == "available" else f"{entry.status}: "
        lines.append((entry.kind, entry.name, origin, status + summary_of(entry.target)))
    print_table(("kind", "name", "from", "description"), lines, crop=True)
    for place, problem in problems.items():
        print(f"\n{entries[place].kind} {entries[place].name}: {problem}")
    return int(bool(problems))


def summary_of(target: str) -> str:
    """Return the first line of a plugin's docstring, read from the source without an import; empty if not found."""
    module, _, attribute = target.partition(":")
    try:
        tree, package = _parse(module)
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""
    if not attribute:
        return _first_line(tree)
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) if name == attribute:
                return _first_line(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=original)) if name == attribute:
                return summary_of(f"{module}:{original}")
            case ast.ImportFrom():
                for alias in node.names:
                    if attribute == (alias.asname or alias.name):
                        origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                        return summary_of(f"{origin}:{alias.name}")
    return ""


@cache
def _parse(module: str) -> tuple[ast.Module, str]:
    """Return the syntax tree of a module, of its stub if it has one, and the name of its package."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        raise ImportError(f"{top} has no source")
    path = Path(spec.origin).parent.joinpath(*rest) if rest else Path(spec.origin).with_suffix("")
    init = path if path.name == "__init__" else path / "__init__"
    for stem, package in ((init, module), (path, module.rpartition(".")[0])):
        for suffix in (".pyi", ".py"):
            file = stem.with_name(stem.name + suffix)
            if file.is_file():
                return ast.parse(file.read_bytes()), package
    raise ImportError(f"{module} has no source")


def _first_line(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]
