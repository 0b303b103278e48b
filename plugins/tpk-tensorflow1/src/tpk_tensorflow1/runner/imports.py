"""Imports of a script for TensorFlow 1, and the modules that replace them.

Only the script and the modules in its directory tree are changed: before they are compiled, the finder rewrites in
their syntax trees import statements, `int`, `float` and ``%``, and the use of methods that have been removed. Nothing
is added to `sys.modules`, so all other modules import the real packages. Line numbers stay the same, and no bytecode
is cached.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType

import cloudpickle

import tpk_tensorflow1.older as older  # `from tpk_tensorflow1 import` would import TensorFlow.
from tpk_tensorflow1.names import MODULES, module_today
from tpk_tensorflow1.runner.failures import explain_syntax_error

TENSORFLOW = "tpk_tensorflow1"

_OLDER = {
    ".".join(path.relative_to(Path(older.__file__).parent).with_suffix("").parts).removesuffix(".__init__")
    for path in Path(older.__file__).parent.rglob("*.py")
}
"""Modules that `tpk_tensorflow1.older` has."""

_MOVED = {
    "scipy.sparse.linalg.eigen.arpack": "scipy.sparse.linalg",
    **{f"scipy.sparse.{name}": "scipy.sparse" for name in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")},
    "sklearn.cross_validation": "sklearn.model_selection",
    "sklearn.grid_search": "sklearn.model_selection",
}
"""Modules that other packages have moved."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def compiled(source: str | bytes, path: str, packages: Mapping[str, str] | None = None) -> CodeType:
    """Compile the source of a module with its imports replaced.

    Args:
        source: the source.
        path: the path of the file.
        packages: as for `replacement`.

    Raises:
        SyntaxError: the source is invalid; the message says whether it is written for Python 2.
    """
    try:
        tree = _Rewriting(packages or {}).visit(ast.parse(source, path))
        code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        explain_syntax_error(error)
        raise
    return code


def replacement(module: str, packages: Mapping[str, str] | None = None) -> str | None:
    """Return the name of the module that replaces another one; None if it is not replaced.

    Args:
        module: an absolute name, such as ``"tensorflow.contrib.slim"``.
        packages: packages that are replaced in addition to TensorFlow and to the modules in `tpk_tensorflow1.older`,
            such as ``{"tensorpack": "tpk_tensorpack"}``.
    """
    package, _, rest = module.partition(".")
    if packages and package in packages:
        new = f"{packages[package]}.{rest}" if rest else packages[package]
        return replacement(new) or new
    if package == "tensorflow":
        return _replacement_in_tensorflow(rest)
    return f"{older.__name__}.{module}" if module in _OLDER else _MOVED.get(module)


def _replacement_in_tensorflow(module: str) -> str | None:
    module = module.removeprefix("compat.v1").removeprefix(".")
    if not module:
        return TENSORFLOW
    if module.removeprefix("python.").partition(".")[0] == "keras":
        # TensorFlow contains several versions of Keras; scripts get `tf.keras`.
        return f"tensorflow.{module.removeprefix('python.')}"
    today = module_today(module)
    if today == f"tensorflow.{module}":
        return None
    # If neither exists, the import of `today` says what to use instead.
    is_ours = module.partition(".")[0] == "contrib" or _exists(today) or not _exists(f"tensorflow.{module}")
    return today if is_ours else None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class _Rewriting(ast.NodeTransformer):
    """Replaces imports, lets `int`, `float` and ``%`` take arrays with one element, and finds methods that are gone."""

    def __init__(self, packages: Mapping[str, str]) -> None:
        self._packages = packages
        self._used: set[str] = set()

    def visit_Module(self, node: ast.Module) -> ast.Module:
        self.generic_visit(node)
        place = 0 if ast.get_docstring(node, clean=False) is None else 1
        while place < len(node.body) and getattr(node.body[place], "module", None) == "__future__":
            place += 1
        names = [ast.alias(name, f"_tpk_{name}") for name in sorted(self._used)]
        if names:
            node.body.insert(place, ast.ImportFrom(older.__name__, names, 0, lineno=1, col_offset=0))
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        is_conversion = isinstance(node.func, ast.Name) and node.func.id in ("float", "int")
        if is_conversion and len(node.args) == 1 and not isinstance(node.args[0], ast.Constant | ast.Starred):
            node.args = [self._call("element", *node.args)]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        is_text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        if is_text and isinstance(node.op, ast.Mod):
            return ast.copy_location(self._call("formatted", node.left, node.right), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node.attr in older.ATTRIBUTES and isinstance(node.ctx, ast.Load):
            return ast.copy_location(self._call("attribute", node.value, ast.Constant(node.attr)), node)
        return node

    def _call(self, name: str, *args: ast.expr) -> ast.Call:
        self._used.add(name)
        return ast.Call(ast.Name(f"_tpk_{name}", ast.Load()), list(args), [])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        if node.level != 0 or node.module is None:
            return [node]
        module = replacement(node.module, self._packages) or node.module
        imports: list[ast.stmt] = []
        for alias in node.names:
            name = f"{node.module}.{alias.name}".removeprefix("tensorflow.")
            if name in MODULES:
                imports.append(ast.Import([ast.alias(module_today(name), alias.asname or alias.name)]))
            else:
                imports.append(ast.ImportFrom(module, [alias], 0))
        return [ast.copy_location(each, node) for each in imports]

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [ast.copy_location(each, node) for alias in node.names for each in self._imports_of(alias)]

    def _imports_of(self, alias: ast.alias) -> list[ast.stmt]:
        """Return the statements that bind the same name as `alias`."""
        new = replacement(alias.name, self._packages)
        package, _, rest = alias.name.partition(".")
        new_package = replacement(package, self._packages)
        if alias.asname is not None or new_package is None:
            return [ast.Import([ast.alias(new or alias.name, alias.asname)])]
        bound = ast.Import([ast.alias(new_package, package)])
        if not rest:
            return [bound]
        # `import a.b` binds `a`, which has the attribute `b`.
        imported = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant(new or alias.name)], [])
        return [ast.Expr(imported), bound]


class RewritingFinder(MetaPathFinder):
    """A finder that replaces the imports of all modules in some directory trees.

    Args:
        directories: the directory of the script, and further directories with modules of the script.
        packages: as for `replacement`.
    """

    def __init__(self, directories: Sequence[Path], packages: Mapping[str, str] | None = None) -> None:
        self._directories = {place for directory in directories for place in _places(directory)}
        self._packages = packages or {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module whose imports are replaced; None leaves the module to other finders."""
        package = fullname.partition(".")[0]
        if package in self._packages or fullname.startswith("tensorflow.contrib"):
            self._check_importer(fullname)
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None and fullname == "tensorpack":
            message = "No module named 'tensorpack'. To run the script without it: python -m tpk_tensorpack script.py"
            raise ModuleNotFoundError(message, name=fullname)
        return spec if spec is not None and self.adopt(spec) else None

    def adopt(self, spec: ModuleSpec) -> bool:
        """Have the imports of a module replaced, if it is a source file of the script; return whether it is."""
        if type(spec.loader) is not SourceFileLoader or not self.covers(spec.origin):
            return False
        spec.loader = _RewritingLoader(spec.name, spec.loader.path, self._packages)
        spec.cached = None
        return True

    def covers(self, path: str | None) -> bool:
        """Whether the imports of the file at `path` are replaced.

        A symbolic link counts as a file in its own directory and in the directory of its target.
        """
        if path is None:
            return False
        files = _places(Path(path))
        below = [file.relative_to(place) for file in files for place in self._directories if file.is_relative_to(place)]
        return not all(map(is_installed, below)) and not any(
            file.is_relative_to(directory) for file in files for directory in self._own_packages
        )

    @cached_property
    def _own_packages(self) -> list[Path]:
        """Return the directories of tpk's and of the replacing packages, which may be inside the script's directory."""
        ours = {module.name for module in pkgutil.iter_modules() if re.fullmatch("tpk(_.*)?", module.name)}
        names = {name.partition(".")[0] for name in (TENSORFLOW, "tpk", *ours, *self._packages.values())}
        specs = map(PathFinder.find_spec, names)  # `importlib` would ask this finder, endlessly.
        return [Path(spec.origin).resolve().parent for spec in specs if spec is not None and spec.origin]

    def _check_importer(self, fullname: str) -> None:
        """Raise an error if the script imports a package by a string, because only import statements are replaced."""
        frame: FrameType | None = sys._getframe(2)
        # `unittest.mock.patch` imports through pkgutil.
        while frame is not None and re.search("importlib|pkgutil|unittest", frame.f_code.co_filename):
            frame = frame.f_back
        new = replacement(fullname, self._packages)
        if frame is not None and self.covers(frame.f_globals.get("__file__")):
            raise ImportError(
                f"{frame.f_code.co_filename}, line {frame.f_lineno}: {fullname!r} is imported by its name as a string, "
                f"which the runner cannot replace. Write an import statement, or the string {new!r}.",
                name=fullname,
            )
        if PathFinder.find_spec(fullname.partition(".")[0]) is None:
            where = "a module" if frame is None else frame.f_globals.get("__file__", "a module")
            raise ModuleNotFoundError(
                f"No module named {fullname!r}, which {where} imports. If that file belongs to the script, pass its "
                "directory with --also.",
                name=fullname,
            )


class _RewritingLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, packages: Mapping[str, str]) -> None:
        super().__init__(fullname, path)
        self._packages = packages

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path, self._packages)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, and have its functions and classes pickled by value.

        Worker processes do not have this loader. Pickling by value also gives them the current values of the module's
        variables, as a fork would.
        """
        cloudpickle.register_pickle_by_value(module)
        super().exec_module(module)


def is_installed(path: str | Path) -> bool:
    """Whether a path is inside of a directory of installed packages."""
    return not _INSTALLED.isdisjoint(Path(path).parts)


def _places(path: Path) -> set[Path]:
    """Return the absolute path with and without its symbolic links resolved."""
    return {Path(os.path.abspath(path)), path.resolve()}
