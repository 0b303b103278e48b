"""Convert the names and order of call arguments from tensorpack to tpk."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import libcst as cst

from tpk_tensorpack.port.edits import keyword, with_arguments
from tpk_tensorpack.port.names import Rule


def by_position(function: Any) -> list[str]:
    """Return the names of the parameters that may be positional."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind in kinds]


def takes_any_number(function: Any) -> bool:
    """Return whether a function takes ``*args``."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def bound(args: Sequence[cst.Arg], function: Any) -> dict[str, cst.BaseExpression] | None:
    """Return the values of arguments by the names of a function's parameters, or None if they are unknown."""
    positional = [arg.value for arg in args if arg.keyword is None]
    found = dict(zip(by_position(function), positional, strict=False))
    found |= {arg.keyword.value: arg.value for arg in args if arg.keyword is not None}
    # Some are left out if there are too many, or if one is given twice.
    return found if len(found) == len(args) and not any(arg.star for arg in args) else None


def rebind(call: cst.Call, rule: Rule, theirs: Any, more: Mapping[str, str] | None = None) -> cst.Call:
    """Convert a call of a tensorpack name to a call of tpk's.

    Args:
        call: the call.
        rule: the conversion rule.
        theirs: the function or class in tensorpack.
        more: additional arguments to add.
    """
    if takes_any_number(theirs):
        return call
    given = bound(call.args, theirs)
    assert given is not None
    ours = by_position(rule.ours)
    args: list[cst.Arg] = []
    for name, arg in zip(given, call.args, strict=True):
        now = rule.renamed.get(name, name)
        if name in rule.dropped:
            continue
        is_in_place = arg.keyword is None and ours[len(args) : len(args) + 1] == [now]
        is_same = is_in_place or (arg.keyword is not None and now == name)
        args.append(arg if is_same else keyword(now, arg.value).with_changes(comma=arg.comma))
    present = {rule.renamed.get(name, name) for name in given}
    for name, code in {**(more or {}), **rule.added}.items():
        if name not in present:
            args.append(keyword(name, cst.parse_expression(code)))
    # Positional arguments come first.
    args.sort(key=lambda each: each.keyword is not None)
    return with_arguments(call, args) if args != list(call.args) else call
