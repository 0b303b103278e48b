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
_ATTRIBUTES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "A": (object, lambda value: value.toarray() if hasattr(value, "toarray") else value.A),  # SciPy's sparse matrices
    "ANTIALIAS": (ModuleType, lambda image: image.LANCZOS),  # of Pillow
    "getchildren": (ElementTree.Element, lambda element: lambda: list(element)),
    "isAlive": (threading.Thread, lambda thread: thread.is_alive),
    "ptp": (_ARRAY, lambda array: functools.partial(_numpy.ptp, array)),
    "tostring": ((*_ARRAY, array.array), lambda array: array.tobytes),
}
"""Attributes that have been removed: for objects of which type, and what they are today."""

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
    """Return an attribute, which may have been removed; the runner writes this for ``value.name``."""
    kinds, today = _ATTRIBUTES[name]
    return today(value) if isinstance(value, kinds) and not hasattr(value, name) else getattr(value, name)
