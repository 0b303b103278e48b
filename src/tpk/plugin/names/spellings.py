"""Spellings of arguments that people bring from other systems: taken where they mean the same, else explained."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from tpk.errors import UnknownOptionError

T = TypeVar("T", bound=Callable[..., Any])

_SPELLINGS = "__tpk_spellings__"


def also_spelled(same: Mapping[str, str] | None = None, /, **explained: str) -> Callable[[T], T]:
    """Let a function or a class be called with names of arguments that mean something elsewhere.

    Its signature, which documentation and type checkers see, stays as it is.

    Args:
        same: other names of its own arguments: what is given by one is taken as if it were given by the other.
        explained: names that it takes by no name: what to write instead, for the error.

    Returns:
        What decorates it. A call with an argument that is explained, or that is given by both of its names, raises
        `UnknownOptionError`.

    Example:
        ```python
        @also_spelled({"gpus": "devices"}, use_nccl="write mode='nccl' for it.")
        def build(devices, mode="auto"): ...


        build(gpus=2)  # is build(devices=2)
        ```
    """

    def decorate(target: T) -> T:
        function: Any = target.__init__ if inspect.isclass(target) else target
        inherited_same, inherited_explained = getattr(function, _SPELLINGS, ({}, {}))
        spellings = ({**inherited_same, **(same or {})}, {**inherited_explained, **explained})
        what = f"{target.__name__}()"

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            return function(*args, **_translated(options, spellings, what))

        setattr(call, _SPELLINGS, spellings)
        if not inspect.isclass(target):
            return cast("T", call)
        target.__init__ = call  # type: ignore[method-assign]
        return target

    return decorate


def respelled(target: Any, options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return options by the names that a function or a class has for them itself.

    Args:
        target: what is about to be called.
        options: keyword arguments for it; the names that it knows nothing of stay as they are.
        what: what to call it in messages.

    Raises:
        UnknownOptionError: something in `options` has another name or form here; the message says which.
    """
    function = target.func if isinstance(target, functools.partial) else target
    function = function.__init__ if inspect.isclass(function) else function
    return _translated(options, getattr(function, _SPELLINGS, ({}, {})), what)


def _translated(
    options: Mapping[str, Any], spellings: tuple[Mapping[str, str], Mapping[str, str]], what: str
) -> dict[str, Any]:
    same, explained = spellings
    translated = dict(options)
    for theirs in options.keys() & (same.keys() | explained.keys()):
        if theirs in explained:
            raise UnknownOptionError(f"{what} takes no {theirs}=: {explained[theirs]}")
        own = same[theirs]
        if own in translated:
            raise UnknownOptionError(f"{what} was given {own}= and {theirs}=, which mean the same. Write {own}=.")
        translated[own] = translated.pop(theirs)
    return translated
