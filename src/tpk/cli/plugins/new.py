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


@click.command(epilog=examples("tpk plugins new cost-curve", "tpk plugins new tpk-mine --kind callback --kind hooks"))
@click.argument("name")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(TEMPLATE_KINDS),
    multiple=True,
    default=("callback",),
    help="Its kind; give several for a package with several plugins.  [default: callback]",
)
@click.option(
    "--directory", type=click.Path(path_type=Path), default=Path(), help="Where to write it.  [default: here]"
)
def new(name: str, kinds: tuple[str, ...], directory: Path) -> int:
    """Write a package with a plugin to start from, and its tests.

    NAME is the name of the package, and without "tpk-" the name of the plugin in it. With several kinds, the names of
    the plugins end with their kind.
    """
    module = re.sub(r"[-.]", "_", name)
    plugin = name.removeprefix("tpk-").replace(".", "-")  # in TOML, a dot makes a table
    is_name = re.compile(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*").fullmatch
    if not is_name(name) or not is_name(plugin) or keyword.iskeyword(module) or keyword.iskeyword(_class_name(plugin)):
        raise PluginError(
            f"{name!r} cannot be the name of a package: begin with a lower-case letter, and use lower-case letters, "
            "digits and hyphens"
        )
    root = directory / name
    if root.exists():
        raise PluginError(f"{root} exists already: choose another name or --directory")
    if importlib.util.find_spec(module):
        raise PluginError(f"the new module would hide the module {module}, which exists already: choose another name")
    if len(set(kinds)) == 1:
        plugins = [_plugin(kinds[0], name, plugin, module)]
    else:
        plugins = [_plugin(kind, name, f"{plugin}-{kind}", f"{module}.{kind}") for kind in dict.fromkeys(kinds)]
    for path, content in _contents(name, module, plugins).items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    print(f"Wrote {root}. Next:\n  pip install -e '{root}[test]'\n  pytest {root}")
    print("\n".join(f"  tpk plugins show {each['name']}" for each in plugins))
    return 0


def _class_name(plugin: str) -> str:
    return "".join(word.capitalize() for word in re.split(r"[-_.]", plugin))


def _plugin(kind: str, distribution: str, name: str, module: str) -> dict[str, str]:
    """Return what the templates for one plugin insert."""
    class_name = _class_name(name)
    return {
        "distribution": distribution,
        "name": name,
        "module": module,
        "class_name": class_name,
        "kind": kind,
        "group": GROUPS["plugin" if kind == "hooks" else kind],
        "target": module if kind == "hooks" else f"{module}:{class_name}",
    }


def _contents(distribution: str, module: str, plugins: list[dict[str, str]]) -> dict[str, str]:
    """Return the contents of the files of a package by their paths."""
    contained = ", ".join(f"the {plugin['kind']} {plugin['name']}" for plugin in plugins)
    shared = {
        "distribution": distribution,
        "version": __version__,
        "description": f"For tpk: {contained}.",
        "plugins": "\n".join(_filled(f"{plugin['kind']}_readme.md", plugin) for plugin in plugins),
        "entry_points": "\n".join(_filled("entry_point.toml", plugin) for plugin in plugins),
        "source": f"src/{module}.py" if len(plugins) == 1 else f"src/{module}",
    }
    contents = {
        "pyproject.toml": _filled("pyproject.toml", shared),
        "README.md": _filled("readme.md", shared),
        ".gitignore": _filled("gitignore", shared),
        ".github/workflows/tests.yml": _filled("ci.yml", shared),
        "tests/conftest.py": _filled("conftest.py", shared),
    }
    if len(plugins) > 1:
        contents[f"src/{module}/__init__.py"] = f'"""{shared["description"]}"""\n'
    for plugin in plugins:
        contents[f"src/{plugin['module'].replace('.', '/')}.py"] = _filled(f"{plugin['kind']}.py", plugin)
        contents[f"tests/test_{plugin['module'].replace('.', '_')}.py"] = _filled(f"test_{plugin['kind']}.py", plugin)
    return contents


def _filled(template: str, values: dict[str, str]) -> str:
    """Return a template with values inserted."""
    text = (files("tpk.cli") / "templates" / f"{template}.in").read_text(encoding="utf-8")
    return string.Template(text).substitute(values)
