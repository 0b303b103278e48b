"""Registrations: what pluggy holds in place of a plugin, and the notes that errors get on their way out of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

from tpk.errors import StopTraining, add_note
from tpk.plugin.callback import MAY_STOP, STEP_HOOKS
from tpk.plugin.hooks.implementations import Implementation

_GRAPH_IS_FINALIZED = "Graph is finalized"
"""How TensorFlow begins to say that an op is made too late."""


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
        take_stop: Callable[[StopTraining], None] | None = None,
    ) -> None:
        """Hold `implementations`; `step_function` may put another function in place of one of a step hook.

        What raises `StopTraining` at a moment in which all are to be called hands it to `take_stop`.
        """
        self.name = name
        self.implementations = {each.hook: each for each in implementations}
        for each in implementations:
            if each.hook not in STEP_HOOKS:
                function = noted(name, each, take_stop or raise_stop)
            elif step_function is not None:
                function = step_function(name, each)
            else:
                function = each.method
            setattr(self, each.hook, function)

    def __dir__(self) -> list[str]:
        return list(self.implementations)

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(self.implementations)}>"


def raise_stop(stop: StopTraining) -> None:
    """Raise what asks for the end of the training: what to do with it where nothing can end it in good order."""
    raise stop


def noted(
    name: str, implementation: Implementation, take_stop: Callable[[StopTraining], None] = raise_stop
) -> Callable[..., Any]:
    """Return the method of `implementation`, with a note in its errors that says where they come from.

    At a moment in which all plugins are to be called, one that asks for the end of the training keeps nobody from it.
    """
    method = implementation.method
    may_stop = implementation.hook in MAY_STOP

    # pluggy takes the arguments' names from what `functools.wraps` points to.
    @functools.wraps(method)
    def call(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except StopTraining as stop:
            note_failure(stop, name, implementation.hook)
            if not may_stop:
                raise
            take_stop(stop)
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
        if _GRAPH_IS_FINALIZED in str(error):
            add_note(error, "ops are made in setup_graph, which is the last chance to: keep them for later")
