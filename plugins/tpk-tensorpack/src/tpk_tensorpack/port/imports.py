"""The import statements of a converted module: kept, removed and added ones."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import libcst as cst
from tpk_tensorflow1.runner.imports import replacement

from tpk_tensorpack.port.edits import WIDTH, Edits, comment_lines, statements
from tpk_tensorpack.port.foreign import is_real_module
from tpk_tensorpack.port.occurrences import PACKAGES, Occurrence, Script, local_name, module_of, package_of


class Imports:
    """The changes to a script's imports.

    Args:
        script: the script.

    Attributes:
        want_tensorflow1: whether the script needs TensorFlow 1 behavior.
        behind: statements to insert after the imports.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._kept: dict[cst.CSTNode, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
        self._staying: dict[cst.CSTNode, set[str]] = defaultdict(set)
        self._replaced: dict[cst.CSTNode, set[str]] = defaultdict(set)
        self._needed: list[str] = []
        self.want_tensorflow1 = False
        self.behind: list[str] = []
        self._tensorflow, self.tensorflow_is_v1 = self._find_tensorflow()

    def keep(self, occurrence: Occurrence, reason: str, name: str = "") -> None:
        """Import a name from `tpk_tensorpack`.

        Args:
            occurrence: its use.
            reason: why it does not become tpk's.
            name: its name in tensorpack.
        """
        self._kept[occurrence.statement][occurrence.root.value].add((reason, name or occurrence.root.value))

    def stays(self, occurrence: Occurrence) -> None:
        """Keep an import for one of its uses."""
        self._staying[occurrence.statement].add(occurrence.root.value)

    def replaced(self, occurrence: Occurrence) -> None:
        """Record that an import has lost one of its uses."""
        self._replaced[occurrence.statement].add(occurrence.root.value)

    def need(self, statement: str) -> None:
        """Add an import statement."""
        if statement not in self._needed:
            self._needed.append(statement)

    def tensorflow_name(self) -> str:
        """Import TensorFlow, and return its name in the converted script."""
        if not self._tensorflow:
            self._tensorflow = "tf"
            self.need("import tensorflow as tf")
        return self._tensorflow

    def numpy_name(self) -> str:
        """Import NumPy, and return its name in the converted script."""
        for node in self._script.imports:
            if isinstance(node, cst.Import):
                for alias in node.names:
                    if alias.evaluated_name == "numpy":
                        return local_name(alias)
        self.need("import numpy as np")
        return "np"

    def apply(self, edits: Edits) -> cst.Module:
        """Apply edits to the script, and return it with the new imports and the statements after them.

        Imports of the standard library join the existing ones. Others are inserted before the first import that
        changes, or after the last import if none does.
        """
        needed = sorted(self._needed, key=lambda each: (each.startswith("from"), each))
        standard = [each for each in needed if _is_of_standard_library(each)]
        others = [each for each in needed if each not in standard]
        changed = self._changed()
        first = next((line for line in changed if isinstance(self._script.parent(line), cst.Module)), None)
        if first is not None:
            changed[first] = [*others, *changed[first]]
            others = []
        for line, new in changed.items():
            edits.replaced[line] = statements(new)
        module = edits.apply(self._script.module)
        body = list(module.body)
        _insert_standard(body, standard)
        end = _end_of_imports(body)
        body[end:end] = statements([*others, *self._after()])
        return module.with_changes(body=body)

    def _changed(self) -> dict[cst.BaseStatement, list[str]]:
        """Return the import statements that change, and their replacements."""
        found: dict[cst.BaseStatement, list[str]] = {}
        for node in self._script.imports:
            line = self._script.statement(node)
            if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
                new = self._rewritten_import(node) if isinstance(node, cst.Import) else self._rewritten_from(node)
                if new is not None:
                    found[line] = new
        return found

    def _after(self) -> list[str]:
        """Return the statements to insert after the imports."""
        code = []
        if self.want_tensorflow1:
            v1 = self._tensorflow if self.tensorflow_is_v1 else f"{self._tensorflow}.compat.v1"
            code = [f"{v1}.disable_v2_behavior()", f"{v1}.enable_resource_variables()"]
        code += self.behind
        return ["", *code] if code else []

    def _rewritten_import(self, node: cst.Import) -> list[str] | None:
        """Return the replacements of a statement, or None to keep it."""
        kept, staying = self._kept[node], self._staying[node]
        new = []
        for alias in node.names:
            full, name = alias.evaluated_name, local_name(alias)
            package = package_of(full)
            if package == "tensorpack":
                new += [f"import tpk_{_written(alias)}"] if name in kept else []
            elif package not in PACKAGES or name in staying or is_real_module(full):
                new.append(f"import {_written(alias)}")
        if new == [f"import {_written(alias)}" for alias in node.names]:
            return None
        return [*_reasons(kept), *new]

    def _rewritten_from(self, node: cst.ImportFrom) -> list[str] | None:
        """Return the replacements of a statement, or None to keep it."""
        kept, staying, replaced = self._kept[node], self._staying[node], self._replaced[node]
        module = module_of(node)
        if package_of(module) != "tensorpack":
            if isinstance(node.names, cst.ImportStar) or (
                package_of(module) == "tensorflow" and replacement(module) is None
            ):
                return None
            lost = replaced if is_real_module(module) else {local_name(alias) for alias in node.names}
            unused = lost - staying
            remaining = [_written(alias) for alias in node.names if local_name(alias) not in unused]
            return None if len(remaining) == len(node.names) else _from_import(module, remaining)
        if isinstance(node.names, cst.ImportStar):
            return [*_reasons(kept), *_from_import(f"tpk_{module}", kept)]
        of_package = [_written(alias) for alias in node.names if local_name(alias) in kept]
        remaining = [_written(alias) for alias in node.names if local_name(alias) in staying]
        return [*_reasons(kept), *_from_import(f"tpk_{module}", of_package), *_from_import(module, remaining)]

    def _find_tensorflow(self) -> tuple[str, bool]:
        found: dict[str, str] = {}
        for node in self._script.imports:
            if isinstance(node, cst.Import) and self._script.function(node) is None:
                for alias in node.names:
                    full = alias.evaluated_name
                    if full == "tensorflow" or (full == "tensorflow.compat.v1" and alias.asname is not None):
                        found.setdefault(full, local_name(alias))
        if "tensorflow" in found:
            return found["tensorflow"], False
        return found.get("tensorflow.compat.v1", ""), "tensorflow.compat.v1" in found


def _reasons(kept: dict[str, set[tuple[str, str]]]) -> list[str]:
    """Return comments that say why names are kept."""
    names: dict[str, set[str]] = defaultdict(set)
    for several in kept.values():
        for reason, name in several:
            if reason:
                names[reason].add(name)
    return [
        line
        for reason, those in sorted(names.items(), key=lambda each: (sorted(each[1]), each[0]))
        for line in comment_lines(f"tensorpack's {', '.join(sorted(those))}: {reason}.")
    ]


def _from_import(module: str, names: Iterable[str]) -> list[str]:
    """Return the statement that imports names from a module; an empty list without names."""
    names = sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))
    if not names:
        return []
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return [line]
    return [f"from {module} import (", *(f"    {name}," for name in names), ")"]


def _written(alias: cst.ImportAlias) -> str:
    name = alias.evaluated_name
    return f"{name} as {local_name(alias)}" if alias.asname is not None else name


def _is_of_standard_library(statement: str) -> bool:
    return package_of(statement.split()[1]) in sys.stdlib_module_names


def _imports_in(statement: Any) -> list[str]:
    """Return the import statements as text, one per line."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return []
    return [
        cst.Module([]).code_for_node(each) for each in statement.body if isinstance(each, cst.Import | cst.ImportFrom)
    ]


def _insert_standard(body: list[Any], needed: list[str]) -> None:
    """Insert the imports of the standard library that a body lacks, after those at its beginning."""
    present = {each for statement in body for each in _imports_in(statement)}
    new = statements(each for each in needed if each not in present)
    if not new:
        return
    first = _first_import(body)
    place = first
    for statement in body[first:]:
        imports = _imports_in(statement)
        if not imports or not _is_of_standard_library(imports[0]):
            break
        place += 1
    if place == first and first < len(body):
        new[0] = new[0].with_changes(leading_lines=body[first].leading_lines)
        body[first] = body[first].with_changes(leading_lines=[cst.EmptyLine()])
    body[place:place] = new


def _first_import(body: Sequence[Any]) -> int:
    """Return the index of the first import that is not from ``__future__``, or of the place for one."""
    for index, statement in enumerate(body):
        imports = _imports_in(statement)
        if imports and not any(each.startswith("from __future__") for each in imports):
            return index
    return _end_of_imports(body)


def _end_of_imports(body: Sequence[Any]) -> int:
    """Return the index after the last import, or after the docstring if there are no imports."""
    places = [index for index, each in enumerate(body) if _imports_in(each)]
    if places:
        return places[-1] + 1
    first = body[0].body[0] if body and isinstance(body[0], cst.SimpleStatementLine) else None
    return 1 if isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString) else 0
