"""Registrations: what pluggy holds in place of a plugin, and the notes that errors get on their way out of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

from tpk.errors import add_note
from tpk.plugin.implementations import Implementation
from tpk.plugin.spec import STEP_HOOKS


class Registration:
    """A plugin as pluggy sees it: an object whose attributes are exactly the hooks that the plugin implements.

    The plugin itself is never given to pluggy, which would evaluate its properties, miss what it forwards by
    ``__getattr__``, and take it for another one that is equal to it.

    Attributes:
        name: the unique name of the plugin.
        implementations: its hooks, by name.
    """

    def __init__(
        self,
        name: str,
        implementations: list[Implementation],
        step_function: Callable[[str, Implementation], Callable[..., Any]] | None = None,
    ) -> None:
        """Hold `implementations`; `step_function` may put another function in place of one of a step hook."""
        self.name = name
        self.implementations = {each.hook: each for each in implementations}
        for each in implementations:
            if each.hook not in STEP_HOOKS:
                function = noted(name, each)
            elif step_function is not None:
                function = step_function(name, each)
            else:
                function = each.method
            setattr(self, each.hook, function)

    def __dir__(self) -> list[str]:
        return list(self.implementations)

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(self.implementations)}>"


def noted(name: str, implementation: Implementation) -> Callable[..., Any]:
    """Return the method of `implementation`, with a note in its errors that says where they come from."""
    method = implementation.method

    # pluggy takes the arguments' names from what `functools.wraps` points to.
    @functools.wraps(method)
    def call(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except BaseException as error:
            note_failure(error, name, implementation.hook)
            raise

    @functools.wraps(method)
    def call_wrapper(*arguments: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield from method(*arguments))
        except BaseException as error:
            note_failure(error, name, implementation.hook)
            raise

    return call_wrapper if implementation.wrapper else call


def note_failure(error: BaseException, name: str, hook: str) -> None:
    """Note in `error` that it was raised in `hook` of the plugin `name`, unless it has such a note already.

    A wrapper sees the errors of those that it wraps; the first note is the one that is right.
    """
    if not any(note.startswith("in callback ") for note in getattr(error, "__notes__", ())):
        add_note(error, f"in callback {name!r}, hook {hook!r}")
