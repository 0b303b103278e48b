"""The public names of tpk and of packages, read from their ``__init__.pyi`` or ``__all__``; nothing is imported."""

import ast
import functools
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tpk"
ROOMS = (
    "train",
    "callbacks",
    "monitors",
    "strategies",
    "dataflow",
    "input_source",
    "tower",
    "layers",
    "layers.rnn_cell",
    "graph",
    "checkpoint",
    "predict",
    "session",
    "plugin",
    "errors",
    "testing",
)
"""Where public names are, in the order of the reference."""

PACKAGES = ("tpk_distributed", "tpk_estimator", "tpk_keras", "tpk_lmdb")
"""The packages under plugins/ that have a reference page."""


@frozen
class PublicName:
    """A name that a room or a package hands on, and the module below it that it comes from, such as ``savers.best``."""

    room: str
    name: str
    module: str

    @property
    def path(self):
        return f"{module_of(self.room)}.{self.name}"


def module_of(room):
    return room if room in PACKAGES else f"tpk.{room}"


def folder_of(room):
    if room in PACKAGES:
        return ROOT.joinpath("plugins", room.replace("_", "-"), "src", room)
    return SOURCE.joinpath(*room.split("."))


@functools.cache
def names_of(room):
    """Return what a room or a package hands on, as listed there; without modules."""
    folder = folder_of(room)
    stub = folder / "__init__.pyi"
    if stub.exists():
        body = ast.parse(stub.read_text(encoding="utf-8")).body
        imported = [node for node in body if isinstance(node, ast.ImportFrom) and node.module]
        return tuple(PublicName(room, each.name, node.module) for node in imported for each in node.names)
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return tuple(PublicName(room, name, "") for name in declared_all(path))


def declared_all(path):
    (names,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return names


@functools.cache
def all_names():
    return tuple(name for room in ROOMS for name in names_of(room))


@functools.cache
def names_of_packages():
    return tuple(name for package in PACKAGES for name in names_of(package))


@functools.cache
def defined_in(path):
    """Return what a file defines or imports at its top level, and the members of its classes, dotted."""
    found = set()

    def visit(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for each in (leaf for target in targets for leaf in ast.walk(target)):
                    if isinstance(each, ast.Name):
                        found.add(prefix + each.id)
                    elif isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
                        found.add(prefix.removesuffix("__init__.") + each.attr)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found.update(prefix + (each.asname or each.name) for each in node.names)
            elif isinstance(node, ast.If | ast.Try | ast.With):
                visit(node.body, prefix)

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


@functools.cache
def exists(dotted):
    """Whether a path exists in tpk: a module, a name in a module, or a member of a class."""
    parts = dotted.split(".")[1:]
    if not parts:
        return True
    folder = SOURCE
    while parts and (folder / parts[0]).is_dir():
        folder = folder / parts.pop(0)
    if not parts:
        return True
    if (folder / f"{parts[0]}.py").exists():
        path = folder / f"{parts.pop(0)}.py"
        return not parts or ".".join(parts) in defined_in(path)
    files = [path for path in (folder / "__init__.py", folder / "__init__.pyi") if path.exists()]
    if any(".".join(parts) in defined_in(path) for path in files):
        return True
    room = ".".join(folder.relative_to(SOURCE).parts)
    return any(handed_on(name, parts) for name in all_names() if room in ("", name.room))


def handed_on(name, parts):
    if name.name != parts[0]:
        return False
    return len(parts) == 1 or has_member(source_of(name), ".".join(parts))


def source_of(name):
    """Return the file that defines a public name."""
    folder = SOURCE.joinpath(*name.room.split("."))
    if name.module:
        path = folder.joinpath(*name.module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not folder.is_dir():
        return folder.with_suffix(".py")
    for node in ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == name.name for each in node.names):
            return SOURCE.parent.joinpath(*node.module.split(".")).with_suffix(".py")
    return folder / "__init__.py"


def has_member(path, dotted):
    """Whether a class in a file has a member, by itself or from its bases."""
    if dotted in defined_in(path):
        return True
    owner, _, member = dotted.partition(".")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            text = "\n".join(ast.get_docstring(each) or "" for each in [node])
            if f"{member}:" in text:
                return True
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            known = [name for name in all_names() if name.name in bases]
            return any(has_member(source_of(name), f"{name.name}.{member}") for name in known)
    return False
