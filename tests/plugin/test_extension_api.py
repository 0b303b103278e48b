"""Packages that extend tpk import only what the manual promises them."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import tpk
from tpk.plugin.builtins import PACKAGES

sys.path.append(str(Path(__file__).parents[2] / "docs" / "generate"))
from public_names import ROOMS

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).parents[2]
SOURCE = Path(tpk.__file__).parent

PAGE = (REPOSITORY / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")
EXTENSION_API = set(re.findall(r"^\| `(tpk\.[\w.]+)` \|", PAGE, re.MULTILINE))
PUBLIC = {"tpk", "tpk.graph.random", "tpk.graph.determinism", *(f"tpk.{room}" for room in ROOMS), *EXTENSION_API}

FILES = [
    *(REPOSITORY / "plugins").glob("*/src/**/*.py"),
    *(REPOSITORY / "plugins").glob("*/examples/**/*.py"),
    *(SOURCE / "cli" / "templates").glob("*.py.in"),
]

EXCEPTIONS = {
    # Private names of TensorFlow stay in one module, which is tested with each supported version. They may change with
    # TensorFlow, so others cannot rely on them; these packages are released together with tpk.
    "tpk-distributed/src/tpk_distributed/parameter_servers/distributed_replicated.py": {"tpk.tf_internals"},
    "tpk-distributed/src/tpk_distributed/parameter_servers/server_placement.py": {"tpk.tf_internals"},
    "tpk-distributed/src/tpk_distributed/tensorflow_server.py": {"tpk.tf_internals"},
    "tpk-tensorflow1/src/tpk_tensorflow1/rnn_cell.py": {"tpk.tf_internals"},
    "tpk-tensorpack/src/tpk_tensorpack/tfutils/sessinit.py": {"tpk.tf_internals"},
}


def modules_used_in(path):
    """Return the modules of tpk that a file imports, or reaches through attributes of `tpk`."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".in":
        text = re.sub(r"\$\{?(\w+)\}?", r"\1", text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names if is_module(f"{node.module}.{each.name}"))
        elif isinstance(node, ast.Attribute) and is_module(ast.unparse(node)):
            yield ast.unparse(node)


@pytest.mark.parametrize(("name", "module"), PACKAGES.items())
def test_a_name_in_another_package_is_there(name, module):
    folder = REPOSITORY / "plugins" / module.replace("_", "-")
    exported = "".join(path.read_text(encoding="utf-8") for path in (folder / "src" / module).glob("__init__.py*"))
    is_entry_point = re.search(rf'\n{name} = "{module}\b', (folder / "pyproject.toml").read_text(encoding="utf-8"))
    assert is_entry_point or re.search(rf"\b{name}\b", exported)


def test_each_package_is_an_extra():
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    packages = {path.parent.name.removeprefix("tpk-") for path in (REPOSITORY / "plugins").glob("*/pyproject.toml")}
    assert dict(re.findall(r'^(\S+) = \["tpk-(\S+)"\]$', project, re.MULTILINE)) == {name: name for name in packages}


def is_module(name):
    path = SOURCE.parent.joinpath(*name.split(".")) if re.fullmatch(r"tpk\.[\w.]+", name) else None
    return path is not None and (path.is_dir() or path.with_suffix(".py").is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_a_package_imports_only_public_modules(path):
    used = {name for name in modules_used_in(path) if name.split(".")[0] == "tpk"}
    name = path.relative_to(REPOSITORY / "plugins").as_posix() if REPOSITORY / "plugins" in path.parents else path.name
    assert used - PUBLIC == EXCEPTIONS.get(name, set())


def test_the_modules_of_the_extension_api_exist_and_are_few():
    assert all(map(is_module, EXTENSION_API))
    assert 1 <= len(EXTENSION_API) <= 13


@pytest.mark.parametrize("name", sorted(EXTENSION_API))
def test_the_extension_api_is_documented(name):
    tree = ast.parse(SOURCE.parent.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    for node in (tree, *tree.body):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and getattr(node, "name", "")[:1] != "_":
            assert ast.get_docstring(node), getattr(node, "name", name)
