"""Convert the names and order of call arguments from tensorpack to tpk."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import libcst as cst

from tpk_tensorpack.port.edits import keyword, with_arguments
from tpk_tensorpack.port.names import Rule


def parameters_of(function: Any) -> list[str]:
    """Return the names of the parameters of a function or class, without ``*args`` and ``**kwargs``."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind not in several]


def by_position(function: Any) -> list[str]:
    """Return the names of the parameters that may be positional."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind in kinds]


def takes_any_number(function: Any) -> bool:
    """Return whether a function takes ``*args``."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def bound(args: Sequence[cst.Arg], parameters: Sequence[str]) -> list[tuple[str, cst.Arg]] | None:
    """Return the arguments with their parameter names, or None if they are unknown."""
    found = []
    for index, arg in enumerate(args):
        if arg.star or (arg.keyword is None and index >= len(parameters)):
            return None
        found.append((parameters[index] if arg.keyword is None else arg.keyword.value, arg))
    return found


def rebind(rule: Rule, theirs: Any, ours: Any, more: Mapping[str, str] | None = None) -> Callable[[cst.Call], cst.Call]:
    """Return a function that converts a call of a tensorpack name to a call of tpk.

    Args:
        rule: the conversion rule.
        theirs: the function or class in tensorpack.
        ours: the one in tpk.
        more: additional arguments to add.
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
        # Positional arguments come first.
        args.sort(key=lambda each: each.keyword is not None)
        return with_arguments(call, args) if args != list(call.args) else call

    return edit
