"""Imports of tensorpack, TensorFlow 1 and the NumPy of its time, which lead to what stands in for them here.

Only the script and the modules below its directory are changed, in the syntax tree, before they are compiled: nothing
is put into `sys.modules` under another's name, and every other module sees the real packages. Line numbers stay, and
nothing is written: there is no bytecode cache for what is compiled so.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import cloudpickle

PACKAGE = "tpk_tensorpack"
TENSORFLOW = f"{PACKAGE}.tensorflow1"
STANDS_FOR = {"tensorpack": PACKAGE, "tensorflow": TENSORFLOW, "numpy": f"{PACKAGE}.numpy1"}
"""Packages of which an import without a submodule is an import of another module."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def compiled(source: str | bytes, path: str) -> CodeType:
    """Compile the source of a module, its imports rewritten.

    Raises:
        SyntaxError: as `compile` raises it.
    """
    tree = ast.parse(source, path)
    code: CodeType = compile(ast.fix_missing_locations(_Rewriting().visit(tree)), path, "exec", dont_inherit=True)
    return code


def replacement(module: str) -> str | None:
    """Return the name of the module that stands for another one; None if that is the one to import.

    Args:
        module: an absolute name, such as ``"tensorflow.contrib.slim"``.
    """
    package, _, rest = module.partition(".")
    if package == "tensorpack":
        return f"{PACKAGE}.{rest}" if rest else PACKAGE
    if package == "tensorflow" and rest:
        rest = rest.removeprefix("compat.v1").removeprefix(".")
        if not rest:
            return TENSORFLOW
        if rest.removeprefix("python.").partition(".")[0] == "keras":
            # Of the Kerases within TensorFlow, one is that of `tf.keras`.
            return f"tensorflow.{rest.removeprefix('python.')}"
        is_ours = rest.partition(".")[0] == "contrib" or _exists(f"{TENSORFLOW}.{rest}")
        return f"{TENSORFLOW}.{rest}" if is_ours else None
    return None if rest else STANDS_FOR.get(package)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package on the way to it
        return False


class _Rewriting(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.level == 0 and node.module is not None:
            node.module = replacement(node.module) or node.module
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [ast.copy_location(each, node) for alias in node.names for each in _imports_of(alias)]


def _imports_of(alias: ast.alias) -> list[ast.stmt]:
    """Return the statements that import what `alias` does, and bind the same name."""
    new = replacement(alias.name)
    package, _, rest = alias.name.partition(".")
    if alias.asname is not None or package not in STANDS_FOR:
        return [ast.Import([ast.alias(new or alias.name, alias.asname)])]
    bound = ast.Import([ast.alias(STANDS_FOR[package], package)])
    if not rest:
        return [bound]
    # `import a.b` binds `a`, with the module `b` in it.
    imported = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant(new or alias.name)], [])
    return [ast.Expr(imported), bound]


class RewritingFinder(MetaPathFinder):
    """Finds the modules below some directories, whose imports it rewrites.

    Args:
        directories: those of the script, and of others that are a part of it.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = [directory.resolve() for directory in directories]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is rewritten; None leaves it to the other finders."""
        if fullname == "tensorpack" or fullname.startswith(("tensorpack.", "tensorflow.contrib")):
            self._check_importer(fullname)
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not self.covers(spec.origin):
            return None
        spec.loader = _RewritingLoader(fullname, spec.loader.path)
        spec.cached = None
        return spec

    def covers(self, path: str | None) -> bool:
        """Whether the file at `path` is one whose imports are rewritten."""
        if path is None:
            return False
        file = Path(path).resolve()
        below = [directory for directory in self.directories if file.is_relative_to(directory)]
        return any(_INSTALLED.isdisjoint(file.relative_to(directory).parts) for directory in below) and not any(
            file.is_relative_to(directory) for directory in _our_own()
        )

    def _check_importer(self, fullname: str) -> None:
        """Raise an error if it is the script that imports this: what it writes as a statement never comes here."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is not None and self.covers(frame.f_globals.get("__file__")):
            raise ImportError(
                f"{frame.f_code.co_filename}, line {frame.f_lineno}: {fullname!r} is imported through a string, where "
                f"what runs this script cannot see it. Write an import statement, or the string "
                f"{replacement(fullname)!r}",
                name=fullname,
            )
        if PathFinder.find_spec(fullname.partition(".")[0]) is None:
            where = "A module" if frame is None else frame.f_globals.get("__file__", "a module")
            raise ModuleNotFoundError(
                f"No module named {fullname!r}. {where} imports it, and is not below the directory of the script. If "
                "it is a part of the script, say so: python -m tpk_tensorpack --also DIRECTORY script.py",
                name=fullname,
            )


class _RewritingLoader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, whose functions and classes go to worker processes by value.

        These have no such loader; and what the script has set in the module until then goes along, as by a fork.
        """
        cloudpickle.register_pickle_by_value(module)
        super().exec_module(module)


def _our_own() -> list[Path]:
    """The packages that stand for others, and tpk itself, which may be checked out below the script's directory."""
    specs: list[Any] = [importlib.util.find_spec(name) for name in (PACKAGE, "tpk")]
    return [Path(spec.origin).resolve().parent for spec in specs if spec is not None and spec.origin]
