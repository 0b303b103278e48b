"""Arguments of hooks: an implementation takes those that it uses, and leaves out the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tpk.errors import HookError


def taken_arguments(where: str, given: Sequence[str], method: Callable[..., Any]) -> tuple[str, ...]:
    """Return which of the arguments that a hook gives an implementation takes, in its own order.

    Args:
        where: what implements it, for messages.
        given: what the hook gives.
        method: the implementation, bound if it is a method.

    Raises:
        HookError: it takes others, or does not take them as the hook gives them.
    """
    arguments = inspect.signature(method).parameters
    for argument in arguments.values():
        if argument.kind not in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD):
            problem = f"takes {argument}, but hooks are called with positional arguments"
        elif argument.default is not argument.empty:
            problem = f"gives {argument.name!r} a default: it would never be used, or always"
        elif argument.name not in given:
            problem = f"takes {argument.name!r}, which this hook does not give"
        else:
            continue
        raise HookError(f"{where} {problem}; it may take {', '.join(given) or 'none'}, or less")
    return tuple(arguments)


def taking_all(method: Callable[..., Any], taken: Sequence[str], given: Sequence[str]) -> Callable[..., Any]:
    """Return a function of all that a hook gives: the very `method`, if it takes all of it, in the same order."""
    if tuple(taken) == tuple(given):
        return method
    if not taken:
        return lambda *_: method()
    positions = [given.index(argument) for argument in taken]
    return lambda *arguments: method(*[arguments[position] for position in positions])
