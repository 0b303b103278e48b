"""Package templates (``tpk plugins new``): a package to start a plugin from, which passes its own tests."""

from __future__ import annotations

import importlib.util
import keyword
import re
import string
from importlib.resources import files
from pathlib import Path

from tpk import __version__
from tpk.errors import PluginError
from tpk.plugin.catalog import GROUPS


def write_package(name: str, kind: str, directory: Path) -> int:
    """Write the package `name` into a new directory of that name, and to stdout what to do next.

    Args:
        name: the name of the directory and the distribution, such as ``cost-curve`` or ``tpk-cost-curve``; the plugin
            in it is named like that, too, but for ``tpk-``.
        kind: ``"callback"``, ``"monitor"``, ``"strategy"`` or ``"trainer"``.
        directory: where to make the new directory.

    Returns:
        The exit status, 0.

    Raises:
        PluginError: the name cannot be that of a package, or there is one of that name already.
    """
    module = re.sub(r"[-.]", "_", name)
    plugin = name.removeprefix("tpk-")
    class_name = "".join(word.capitalize() for word in re.split(r"[-_.]", plugin))
    is_name = re.compile(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*").fullmatch
    if not is_name(name) or not is_name(plugin) or keyword.iskeyword(module) or keyword.iskeyword(class_name):
        raise PluginError(
            f"{name!r} cannot be the name of a package: begin with a lower-case letter, and use such letters, digits "
            "and hyphens"
        )
    root = directory / name
    if root.exists():
        raise PluginError(f"{root} exists already: choose another name or --directory")
    if importlib.util.find_spec(module):
        raise PluginError(f"there is a module {module} already, which the new one would hide: choose another name")
    values = {
        "distribution": name,
        "name": plugin,
        "module": module,
        "class_name": class_name,
        "kind": kind,
        "group": GROUPS[kind],
        "list": {"callback": "callbacks", "monitor": "monitors"}.get(kind, "trainer"),
        "version": __version__,
    }
    for path, template in _contents(module, kind).items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(string.Template(template).substitute(values), encoding="utf-8")
    print(
        f"Wrote {root}. Next:\n"
        f"  pip install -e '{root}[test]'\n"
        f"  pytest {root}\n"
        f"  tpk plugins show --kind {kind} {plugin}"
    )
    return 0


def _contents(module: str, kind: str) -> dict[str, str]:
    """Return the templates of the files of a package, by their paths in it."""
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": f"{kind}_readme.md",
        f"src/{module}.py": f"{kind}.py",
        "tests/conftest.py": "conftest.py",
        f"tests/test_{module}.py": f"test_{kind}.py",
    }
    templates = files("tpk.cli") / "templates"
    return {path: (templates / f"{source}.in").read_text(encoding="utf-8") for path, source in sources.items()}
