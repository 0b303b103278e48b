"""The import statements of a converted module: kept, removed and added ones."""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import libcst as cst
from tpk_tensorflow1.runner.imports import replacement

from tpk_tensorpack.port.edits import WIDTH, Edits, comment_lines, statements
from tpk_tensorpack.port.foreign import is_real_module
from tpk_tensorpack.port.occurrences import PACKAGES, Occurrence, Script, dotted, local_name, module_of, package_of


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

    def need_tpk(self) -> None:
        """Import tpk."""
        self.need("import tpk")

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
                    if dotted(alias.name) == "numpy":
                        return local_name(alias)
        self.need("import numpy as np")
        return "np"

    def rewrite(self, edits: Edits) -> None:
        """Apply the changes; new imports are inserted before the first changed one."""
        first: cst.BaseStatement | None = None
        by_line: dict[cst.BaseStatement, list[str]] = {}
        for node in self._script.imports:
            line = self._script.statement(node)
            if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
                continue
            new = self._rewritten(node)
            if new is None:
                continue
            by_line[line] = new
            if first is None and isinstance(self._script.parent(line), cst.Module):
                first = line
        if first is not None:
            by_line[first] = [*self._new(), *by_line[first]]
            self._needed = [each for each in self._needed if _is_of_standard_library(each)]
        for line, new in by_line.items():
            edits.replaced[line] = statements("".join(f"{each}\n" for each in new))

    def finish(self, module: cst.Module) -> cst.Module:
        """Return the module with the imports that have not been placed yet, and the statements after them."""
        body = list(module.body)
        standard = [each for each in self._needed if _is_of_standard_library(each)]
        present = {each for statement in body for each in _imports_in(statement)}
        new = sorted(
            {each for each in standard if each not in present}, key=lambda each: (each.startswith("from"), each)
        )
        self._needed = [each for each in self._needed if each not in standard]
        places = [index for index, each in enumerate(body) if any(True for _ in _imports_in(each))]
        ours = [
            index
            for index in places
            if not any(each.startswith("from __future__") for each in _imports_in(body[index]))
        ]
        first = ours[0] if ours else (places[-1] + 1 if places else _behind_docstring(body))
        if new:
            inserted = statements("".join(f"{each}\n" for each in new))
            place = first
            while place < len(body) and place in ours and _is_of_standard_library(_imports_in(body[place])[0]):
                place += 1
            if place == first and first < len(body):
                inserted[0] = inserted[0].with_changes(leading_lines=body[first].leading_lines)
                body[first] = body[first].with_changes(leading_lines=[cst.EmptyLine()])
            body[place:place] = inserted
        last = max((index for index, each in enumerate(body) if any(True for _ in _imports_in(each))), default=-1)
        code = [*self._new(), *([""] if self.behind or self.want_tensorflow1 else [])]
        if self.want_tensorflow1:
            v1 = self._tensorflow if self.tensorflow_is_v1 else f"{self._tensorflow}.compat.v1"
            code += [f"{v1}.disable_v2_behavior()", f"{v1}.enable_resource_variables()"]
        code += self.behind
        self._needed = []
        body[last + 1 : last + 1] = statements("".join(f"{each}\n" for each in code))
        return module.with_changes(body=body)

    def _new(self) -> list[str]:
        """Return the imports that have not been placed yet, except for the standard library."""
        return sorted(
            (each for each in self._needed if not _is_of_standard_library(each)),
            key=lambda each: (not each.startswith("import"), each),
        )

    def _rewritten(self, node: cst.Import | cst.ImportFrom) -> list[str] | None:
        """Return the replacements of a statement, or None to keep it."""
        kept, staying, replaced = self._kept[node], self._staying[node], self._replaced[node]
        if isinstance(node, cst.Import):
            return self._rewritten_import(node)
        module = module_of(node)
        package = package_of(module)
        if package == "tensorflow" and replacement(module) is None:
            return None
        if isinstance(node.names, cst.ImportStar):
            if package != "tensorpack":
                return None
            found = sorted(kept)
            new = [_from_import(f"tpk_{module}", found)] if found else []
            return [*_reasons(kept), *new]
        remaining = [alias for alias in node.names if _bound(alias) in staying]
        if package != "tensorpack":
            remaining = [
                alias
                for alias in node.names
                if _bound(alias) in staying or (_bound(alias) not in replaced and is_real_module(module))
            ]
            if len(remaining) == len(node.names):
                return None
            return [_from_import(module, [_written(alias) for alias in remaining])] if remaining else []
        of_package = [_written(alias) for alias in node.names if _bound(alias) in kept]
        new = [_from_import(f"tpk_{module}", of_package)] if of_package else []
        if remaining:
            new.append(_from_import(module, [_written(alias) for alias in remaining]))
        return [*_reasons(kept), *new]

    def _rewritten_import(self, node: cst.Import) -> list[str] | None:
        kept, staying = self._kept[node], self._staying[node]
        new = []
        for alias in node.names:
            full, name = dotted(alias.name), local_name(alias)
            as_name = f" as {name}" if alias.asname is not None else ""
            package = package_of(full)
            if package == "tensorpack":
                new += [f"import tpk_{full}{as_name}"] if name in kept else []
            elif package not in PACKAGES or name in staying or is_real_module(full):
                new.append(f"import {full}{as_name}")
        if new == [
            f"import {dotted(alias.name)}" + (f" as {local_name(alias)}" if alias.asname else "")
            for alias in node.names
        ]:
            return None
        return [*_reasons(kept), *new]

    def _find_tensorflow(self) -> tuple[str, bool]:
        found: dict[str, str] = {}
        for node in self._script.imports:
            if isinstance(node, cst.Import) and self._script.function(node) is None:
                for alias in node.names:
                    full = dotted(alias.name)
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
        for reason, those in sorted(names.items(), key=lambda each: sorted(each[1]))
        for line in comment_lines(f"tensorpack's {', '.join(sorted(those))}: {reason}.")
    ]


def _from_import(module: str, names: Sequence[str]) -> str:
    names = sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return f"from {module} import (\n{textwrap.indent(''.join(f'{name},' + chr(10) for name in names), '    ')})"


def _written(alias: cst.ImportAlias) -> str:
    name = dotted(alias.name)
    return f"{name} as {_bound(alias)}" if alias.asname is not None else name


def _bound(alias: cst.ImportAlias) -> str:
    return str(alias.evaluated_alias or dotted(alias.name))


def _is_of_standard_library(statement: str) -> bool:
    return package_of(statement.split()[1]) in sys.stdlib_module_names


def _imports_in(statement: Any) -> list[str]:
    """Return the import statements as text, one per line."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return []
    return [
        cst.Module([]).code_for_node(each) for each in statement.body if isinstance(each, cst.Import | cst.ImportFrom)
    ]


def _behind_docstring(body: Sequence[Any]) -> int:
    first = body[0].body[0] if body and isinstance(body[0], cst.SimpleStatementLine) else None
    return 1 if isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString) else 0
