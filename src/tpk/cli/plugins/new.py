"""``tpk plugins new``: a package to start a plugin from. It passes its own tests."""

from __future__ import annotations

import importlib.util
import keyword
import re
import string
from importlib.resources import files
from pathlib import Path

import click

from tpk import __version__
from tpk.cli.framework import examples
from tpk.errors import PluginError
from tpk.plugin.catalog import GROUPS

TEMPLATE_KINDS = ("callback", "monitor", "strategy", "trainer", "hooks")


@click.command(epilog=examples("tpk plugins new cost-curve", "tpk plugins new tpk-mine --kind strategy"))
@click.argument("name")
@click.option("--kind", type=click.Choice(TEMPLATE_KINDS), default="callback", show_default=True, help="Its kind.")
@click.option(
    "--directory", type=click.Path(path_type=Path), default=Path(), help="Where to write it.  [default: here]"
)
def new(name: str, kind: str, directory: Path) -> int:
    """Write a package with a plugin to start from, and its tests.

    NAME is the name of the package, and without "tpk-" the name of the plugin in it.
    """
    module = re.sub(r"[-.]", "_", name)
    plugin = name.removeprefix("tpk-")
    class_name = "".join(word.capitalize() for word in re.split(r"[-_.]", plugin))
    is_name = re.compile(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*").fullmatch
    if not is_name(name) or not is_name(plugin) or keyword.iskeyword(module) or keyword.iskeyword(class_name):
        raise PluginError(
            f"{name!r} cannot be the name of a package: begin with a lower-case letter, and use lower-case letters, "
            "digits and hyphens"
        )
    root = directory / name
    if root.exists():
        raise PluginError(f"{root} exists already: choose another name or --directory")
    if importlib.util.find_spec(module):
        raise PluginError(f"the new module would hide the module {module}, which exists already: choose another name")
    values = {
        "distribution": name,
        "name": plugin,
        "module": module,
        "class_name": class_name,
        "kind": kind,
        "group": GROUPS["plugin" if kind == "hooks" else kind],
        "target": module if kind == "hooks" else f"{module}:{class_name}",
        "list": {"callback": "callbacks", "monitor": "monitors"}.get(kind, "trainer"),
        "version": __version__,
    }
    for path, template in _contents(module, kind).items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(string.Template(template).substitute(values), encoding="utf-8")
    print(f"Wrote {root}. Next:\n  pip install -e '{root}[test]'\n  pytest {root}\n  tpk plugins show {plugin}")
    return 0


def _contents(module: str, kind: str) -> dict[str, str]:
    """Return the templates of the files of a package by their paths."""
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": f"{kind}_readme.md",
        f"src/{module}.py": f"{kind}.py",
        ".gitignore": "gitignore",
        ".github/workflows/tests.yml": "ci.yml",
        "tests/conftest.py": "conftest.py",
        f"tests/test_{module}.py": f"test_{kind}.py",
    }
    templates = files("tpk.cli") / "templates"
    return {path: (templates / f"{source}.in").read_text(encoding="utf-8") for path, source in sources.items()}
