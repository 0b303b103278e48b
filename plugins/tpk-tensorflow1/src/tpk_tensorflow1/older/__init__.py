"""Modules as scripts for TensorFlow 1 knew them, with the names that Python, NumPy and SciPy have removed since.

A script that imports ``numpy`` gets ``older.numpy``; all other modules get the real one. `attribute`, `element` and
`formatted` are for what cannot be replaced by a module: the runner calls them in the script.
"""

from __future__ import annotations

import array
import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as _numpy  # The package has a module of this name.

_ARRAY = (_numpy.ndarray, _numpy.generic)
_ATTRIBUTES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "getchildren": (ElementTree.Element, list),
    "isAlive": (threading.Thread, threading.Thread.is_alive),
    "ptp": (_ARRAY, _numpy.ptp),
    "tostring": ((*_ARRAY, array.array), lambda array, *args: array.tobytes(*args)),
}
"""Methods that have been removed: for objects of which type, and what to call instead."""

ATTRIBUTES = frozenset(_ATTRIBUTES)


def names_of(module: ModuleType) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that also has the names of the real `module`."""

    def find(name: str) -> Any:
        if name == "__path__":  # Otherwise, Python would look for further modules there.
            raise AttributeError(name)
        return getattr(module, name)

    return find


def element(value: Any) -> Any:
    """Return the element of an array that has only one; return any other value unchanged.

    The runner writes ``int(element(x))`` for ``int(x)``, because NumPy 2.5 refuses arrays of shape ``[1]`` there.
    """
    return value.item() if isinstance(value, _numpy.ndarray) and value.size == 1 else value


def formatted(text: str, values: Any) -> str:
    """Return ``text % values``, where arrays with one element count as numbers."""
    try:
        return text % values
    except TypeError:
        return text % (tuple(map(element, values)) if isinstance(values, tuple) else element(values))


def attribute(value: Any, name: str) -> Any:
    """Return an attribute, which may be a method that has been removed; the runner writes this for ``value.name``."""
    kinds, function = _ATTRIBUTES[name]
    if isinstance(value, kinds) and not hasattr(value, name):
        return functools.partial(function, value)
    return getattr(value, name)
