"""What a module of TensorFlow 1 says of a name for which there is nothing: the nearest that there is."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf


def finder_in(module: str, names: Iterable[str], instead: dict[str, str] | None = None) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` for all names that it has not: an `AttributeError` that says what it has.

    Args:
        module: what scripts call it.
        names: those that it has.
        instead: what to write in place of names for which there is nothing.
    """
    known = sorted(names)

    def missing(name: str) -> Any:
        # What Python itself looks for in a module, such as `__path__`, is nobody's mistake.
        if name.startswith("__"):
            raise AttributeError(name)
        raise no_such_name(module, name, known, (instead or {}).get(name))

    return missing


def no_such_name(module: str, name: str, known: Iterable[str], instead: str | None = None) -> AttributeError:
    """Return the error of a name for which there is nothing.

    Args:
        module: what scripts call the module.
        name: the name.
        known: the names that the module has.
        instead: what to write in place of it.
    """
    near = difflib.get_close_matches(name, sorted(known), n=1)
    nearest = f"; the nearest that there is: {module}.{near[0]}" if near else ""
    hint = f"; write {instead}" if instead else nearest
    return AttributeError(
        f"TensorFlow {tf.__version__} has no {module}.{name}, and nothing here stands for it{hint}", name=name
    )
