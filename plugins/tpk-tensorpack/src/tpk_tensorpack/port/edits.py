"""Edits of a syntax tree: collected by node and applied in one pass that preserves everything else."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import libcst as cst

Edit = Callable[[Any], Any]

WIDTH = 120


class Edits:
    """The changes to make to a tree.

    Attributes:
        of_nodes: for a node of the tree, a function that replaces its new form, whose children have already been
            changed.
        replaced: statements and their replacements; comments before them are kept.
        comments: lines of comments to insert before statements.
    """

    def __init__(self) -> None:
        self.of_nodes: dict[cst.CSTNode, list[Edit]] = defaultdict(list)
        self.replaced: dict[cst.CSTNode, Sequence[cst.BaseStatement]] = {}
        self.comments: dict[cst.CSTNode, list[str]] = defaultdict(list)

    def change(self, node: cst.CSTNode, edit: Edit) -> None:
        """Change a node, after its children."""
        self.of_nodes[node].append(edit)

    def put(self, node: cst.CSTNode, code: str) -> None:
        """Replace an expression."""
        self.change(node, lambda updated: _in_parentheses_of(cst.parse_expression(code), updated))

    def mark(self, statement: cst.BaseStatement, text: str) -> None:
        """Insert a mark before a statement."""
        self.comments[statement] += comment_lines(text, "# tpk: ", "#      ")

    def apply(self, module: cst.Module) -> cst.Module:
        """Return the changed tree."""
        return module.visit(_Editing(self))  # type: ignore[return-value]


class _Editing(cst.CSTTransformer):
    def __init__(self, edits: Edits) -> None:
        self._edits = edits

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        node = updated_node
        if isinstance(node, cst.Module | cst.IndentedBlock):
            node = node.with_changes(body=self._statements(original_node.body, node))
        for edit in self._edits.of_nodes.get(original_node, ()):
            node = edit(node)
        return node

    def _statements(self, originals: Sequence[Any], updated: Any) -> list[Any]:
        """Return the statements of a block after removals, replacements and insertions."""
        found: list[Any] = []
        carried: list[cst.EmptyLine] = []
        for original, node in zip(originals, updated.body, strict=True):
            comments = [_comment(text) for text in self._edits.comments.get(original, ())]
            if original in self._edits.replaced:
                nodes = list(self._edits.replaced[original])
                leading = [*carried, *node.leading_lines, *comments]
                if not nodes:
                    # A comment before a removed import may also apply to what follows.
                    carried = leading if any(each.comment for each in leading) or not found else carried
                    continue
                nodes[0] = nodes[0].with_changes(leading_lines=[*leading, *nodes[0].leading_lines])
                carried = []
                found += nodes
                continue
            if carried or comments:
                node = node.with_changes(leading_lines=[*carried, *node.leading_lines, *comments])
                carried = []
            found.append(node)
        if not found and isinstance(updated, cst.IndentedBlock):
            found = [cst.parse_statement("pass")]
        return found


def statements(lines: Iterable[str]) -> list[cst.BaseStatement]:
    """Return the statements in lines of code, with the comments and empty lines before them."""
    module = cst.parse_module("".join(f"{line}\n" for line in lines))
    first, *others = module.body or [None]
    if first is None:
        return []
    leading = [*module.header, *first.leading_lines]  # type: ignore[union-attr]
    return [first.with_changes(leading_lines=leading), *others]  # type: ignore[list-item]


def comment_lines(text: str, first: str = "# ", next_lines: str = "# ") -> list[str]:
    """Format a text as comment lines."""
    return textwrap.wrap(text, WIDTH - 4, initial_indent=first, subsequent_indent=next_lines, break_long_words=False)


def with_arguments(call: cst.Call, args: Sequence[cst.Arg]) -> cst.Call:
    """Return a call with different arguments, laid out like the old ones."""
    if not args:
        return call.with_changes(args=[], whitespace_before_args=cst.SimpleWhitespace(""))
    old = call.args
    last = old[-1].comma if old else cst.MaybeSentinel.DEFAULT
    inner = [each.comma for each in old[:-1] if isinstance(each.comma, cst.Comma)]
    if inner:
        between = inner[0]
    elif old and isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace):
        between = cst.Comma(whitespace_after=call.whitespace_before_args)
    else:
        between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    laid_out = [
        each if isinstance(each.comma, cst.Comma) and each.comma in inner else each.with_changes(comma=between)
        for each in args[:-1]
    ]
    return call.with_changes(args=[*laid_out, args[-1].with_changes(comma=last)])


def keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    """Return a keyword argument."""
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value, keyword=cst.Name(name), equal=tight)


def _comment(text: str) -> cst.EmptyLine:
    return cst.EmptyLine(comment=cst.Comment(text))


def _in_parentheses_of(node: Any, other: Any) -> Any:
    return node.with_changes(lpar=other.lpar, rpar=other.rpar) if getattr(other, "lpar", ()) else node
