"""Arguments of calls, from the names and order of tensorpack to those of tpk."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import libcst as cst

from tpk_tensorpack.port.edits import keyword, with_arguments
from tpk_tensorpack.port.names import Rule


def parameters_of(function: Any) -> list[str]:
    """Return the names of the parameters of a function or class, but for those that collect others."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind not in several]


def by_position(function: Any) -> list[str]:
    """Return the names of those that may be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind in kinds]


def takes_any_number(function: Any) -> bool:
    """Whether a function takes any number of arguments by position."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def bound(args: Sequence[cst.Arg], parameters: Sequence[str]) -> list[tuple[str, cst.Arg]] | None:
    """Return the arguments with the names of their parameters; None if that cannot be told."""
    found = []
    for index, arg in enumerate(args):
        if arg.star or (arg.keyword is None and index >= len(parameters)):
            return None
        found.append((parameters[index] if arg.keyword is None else arg.keyword.value, arg))
    return found


def rebind(rule: Rule, theirs: Any, ours: Any, more: Mapping[str, str] | None = None) -> Callable[[cst.Call], cst.Call]:
    """Return what makes of a call of something of tensorpack's one of tpk's.

    Args:
        rule: what becomes of it.
        theirs: the function or class of tensorpack.
        ours: that of tpk.
        more: further arguments to write out.
    """
    if takes_any_number(theirs):
        return lambda call: call
    old, new = by_position(theirs), by_position(ours)

    def edit(call: cst.Call) -> cst.Call:
        pairs = bound(call.args, old)
        assert pairs is not None
        args: list[cst.Arg] = []
        given = set()
        for name, arg in pairs:
            now = rule.renamed.get(name, name)
            given.add(now)
            if name in rule.dropped:
                continue
            if arg.keyword is None and new[len(args) : len(args) + 1] == [now]:
                args.append(arg)
            elif arg.keyword is None or now != name:
                args.append(keyword(now, arg.value).with_changes(comma=arg.comma))
            else:
                args.append(arg)
        for name, code in {**rule.added, **(more or {})}.items():
            if name not in given:
                args.append(keyword(name, cst.parse_expression(code)))
        # Those by position come first.
        args.sort(key=lambda each: each.keyword is not None)
        return with_arguments(call, args) if args != list(call.args) else call

    return edit
