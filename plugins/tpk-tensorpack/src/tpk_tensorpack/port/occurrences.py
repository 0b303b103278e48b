"""Find the uses of imported names in a script, and what they refer to."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import libcst as cst
from libcst import metadata

PACKAGES = ("tensorpack", "tensorflow", "numpy")
"""The packages to convert."""

TF1 = ("tensorpack.compat.tfv1", "tensorpack.tfv1", "tensorpack.tfutils.common.tfv1")
"""tensorpack's names of `tf.compat.v1`."""


@attrs.define(eq=False)
class Occurrence:
    """A use of an imported name.

    Attributes:
        node: the longest chain of attributes, such as ``tf.train.AdamOptimizer.minimize``, or the name alone.
        root: the first name, as written in the script.
        binding: the full name that the import binds to it: ``tensorflow`` for ``tf``.
        rest: the attributes after the root.
        statement: the import statement.
    """

    node: cst.BaseExpression
    root: cst.Name
    binding: str
    rest: tuple[str, ...]
    statement: cst.CSTNode

    @property
    def path(self) -> str:
        """The full name, such as ``tensorflow.train.AdamOptimizer``."""
        return ".".join([self.binding, *self.rest])

    def prefix(self, length: int) -> cst.BaseExpression:
        """Return the part of the chain with this many attributes."""
        node = self.node
        for _ in range(len(self.rest) - length):
            assert isinstance(node, cst.Attribute)
            node = node.value
        return node


class Script:
    """A parsed script with resolved names.

    Args:
        source: the source text.

    Attributes:
        module: the syntax tree.
        occurrences: the uses of packages to convert, in order.
        imports: the statements that import from these packages.
        calls: all calls.
        call_of: the call of a called expression.
        classes: all classes.
        attributes: all attributes.
        texts: all texts.
        imported: the packages that are imported.
    """

    def __init__(self, source: str) -> None:
        wrapper = metadata.MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
        self.module = wrapper.module
        self._parents: Mapping[Any, Any] = wrapper.resolve(metadata.ParentNodeProvider)
        self._scopes: Mapping[Any, Any] = wrapper.resolve(metadata.ScopeProvider)
        self._contexts: Mapping[Any, Any] = wrapper.resolve(metadata.ExpressionContextProvider)
        self._positions: Mapping[Any, Any] = wrapper.resolve(metadata.PositionProvider)
        imports: dict[cst.Import | cst.ImportFrom, set[str]] = {
            node: _packages_of(node) for node in nodes_of(self.module, (cst.Import, cst.ImportFrom))
        }
        self.imports = [node for node, packages in imports.items() if not packages.isdisjoint(PACKAGES)]
        self.imported = set[str]().union(*imports.values())
        self.calls: list[cst.Call] = list(nodes_of(self.module, cst.Call))
        self.call_of = {call.func: call for call in self.calls}
        self.classes: list[cst.ClassDef] = list(nodes_of(self.module, cst.ClassDef))
        self.texts = {str(node.evaluated_value) for node in nodes_of(self.module, cst.SimpleString)}
        self.attributes = [node for node in nodes_of(self.module, cst.Attribute) if node in self._scopes]
        self._stars = [
            (node, module, _exported(module))
            for node in self.imports
            if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar)
            for module in [module_of(node)]
        ]
        self.occurrences = list(self._found())

    def parent(self, node: cst.CSTNode) -> Any:
        """Return the parent of a node."""
        return self._parents[node]

    def ancestors(self, node: cst.CSTNode) -> Iterator[Any]:
        """Yield the ancestors of a node, innermost first."""
        while not isinstance(node, cst.Module):
            node = self._parents[node]
            yield node

    def line(self, node: cst.CSTNode) -> int:
        """Return the line number of a node."""
        return int(self._positions[node].start.line)

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Return the statement, on its own lines in a block, that contains a node."""
        line: cst.CSTNode = node
        while not isinstance(self._parents[line], cst.Module | cst.IndentedBlock):
            line = self._parents[line]
        assert isinstance(line, cst.BaseStatement)
        return line

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the function that contains a node, or None at module level."""
        return next((each for each in self.ancestors(node) if isinstance(each, cst.FunctionDef)), None)

    def assignments(self, name: cst.Name) -> set[Any]:
        """Return the assignments that a name may refer to at its place."""
        scope = self._scopes.get(name)
        if scope is None:
            return set()
        return {each for each in scope[name.value] if not isinstance(each, metadata.BuiltinAssignment)}

    def class_of(self, name: cst.CSTNode) -> cst.ClassDef | None:
        """Return the class in this script that a name refers to, or None."""
        if not isinstance(name, cst.Name):
            return None
        found = [getattr(each, "node", None) for each in self.assignments(name)]
        return found[0] if len(found) == 1 and isinstance(found[0], cst.ClassDef) else None

    def _found(self) -> Iterator[Occurrence]:
        for root in nodes_of(self.module, cst.Name):
            # Names of attributes and of keyword arguments have no scope.
            if root not in self._scopes or self._contexts.get(root) is metadata.ExpressionContext.STORE:
                continue
            found = self._binding(root)
            if found is None:
                continue
            statement, binding = found
            chain, rest = root, []
            while isinstance(self._parents[chain], cst.Attribute):
                chain = self._parents[chain]
                rest.append(chain.attr.value)
            yield Occurrence(chain, root, binding, tuple(rest), statement)

    def _binding(self, root: cst.Name) -> tuple[cst.CSTNode, str] | None:
        """Return the statement that imports a name from one of the packages, and the full name that it binds."""
        assigned = self.assignments(root)
        if not assigned:
            stars = [(node, module) for node, module, names in self._stars if root.value in names]
            return (stars[-1][0], f"{stars[-1][1]}.{root.value}") if stars else None
        if not all(isinstance(each, metadata.ImportAssignment) for each in assigned):
            return None
        found = [(each.node, full) for each in assigned for full in each.get_qualified_names_for(root.value)]
        found = [(node, full.name) for node, full in found if package_of(full.name) in PACKAGES]
        return min(found, key=lambda each: self.line(each[0]), default=None)


def dotted(node: cst.CSTNode) -> str:
    """Return a dotted name as text, or an empty string for other expressions."""
    if isinstance(node, cst.Attribute):
        return f"{dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


def text_of(node: cst.CSTNode | None) -> str | None:
    """Return the value of a literal string, or None for other expressions."""
    return str(node.evaluated_value) if isinstance(node, cst.SimpleString) else None


def module_of(node: cst.ImportFrom) -> str:
    """Return the module that a statement imports from; empty for a relative import."""
    return "" if node.module is None else dotted(node.module)


def package_of(module: str) -> str:
    """Return the first part of a dotted name."""
    return module.partition(".")[0]


def _packages_of(node: cst.Import | cst.ImportFrom) -> set[str]:
    """Return the packages that a statement imports from; none for a relative import."""
    if isinstance(node, cst.Import):
        return {package_of(alias.evaluated_name) for alias in node.names}
    return set() if node.relative else {package_of(module_of(node))}


def local_name(alias: cst.ImportAlias) -> str:
    """Return the name that an import binds."""
    return alias.evaluated_alias or package_of(alias.evaluated_name)


def _exported(module: str) -> frozenset[str]:
    """Return the names that a star import of a module binds."""
    if package_of(module) != "tensorpack":
        return frozenset()
    try:
        found = importlib.import_module("tpk_" + module)
    except ImportError:
        return frozenset()
    return frozenset(getattr(found, "__all__", ()))


def nodes_of(tree: cst.CSTNode, kind: type[Any] | tuple[type[Any], ...]) -> Iterator[Any]:
    """Yield the nodes of a kind in a tree, in the order of the source."""
    if isinstance(tree, kind):
        yield tree
    for child in tree.children:
        yield from nodes_of(child, kind)
