"""The modules of a script: files below its directory that it imports directly or indirectly."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tpk_tensorpack.port.report import ConversionError


def modules_of(script: Path) -> list[Path]:
    """Return a script and its modules, the script first. Modules outside the script's directory are left out.

    Args:
        script: the path of the script.

    Raises:
        ConversionError: a file is not valid Python 3.
    """
    found, root = [script], script.parent
    for path in found:  # the list grows during the loop
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except SyntaxError as error:
            raise ConversionError(f"{path}, line {error.lineno}, is not valid Python 3: {error.msg}") from None
        for imported in _imported(tree, path, root):
            found += [each for each in _files_of(imported) if each not in found and each.is_relative_to(root)]
    return found


def _imported(tree: ast.Module, path: Path, root: Path) -> Iterator[Path]:
    """Return the paths, without suffix, of all modules that the imports of a file may refer to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield root.joinpath(*alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if node.level else root
            module = base.joinpath(*(node.module or "").split("."))
            yield module
            yield from (module / alias.name for alias in node.names)


def _files_of(module: Path) -> list[Path]:
    """Return the ``__init__.py`` of the parent packages, then the file of the module or package."""
    candidates = [module.parent / f"{module.name}.py", module / "__init__.py"]
    parents = []
    for parent in module.parents:
        if not (parent / "__init__.py").is_file():
            break
        parents.append(parent / "__init__.py")
    files = [path for path in candidates if path.is_file()]
    return [*reversed(parents), *files] if files else []
