"""tpk trains anything that runs in a loop, in TensorFlow graph mode, on today's TensorFlow 2.

The public API consists of the names that the rooms export, and all of them are also in `tpk`. Names are imported when
they are first used, so `import tpk` takes milliseconds and does not import TensorFlow. A name is declared in one place,
the ``__init__.pyi`` of its room, which type checkers and editors read as well.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

_ROOMS = (
    "callbacks",
    "checkpoint",
    "dataflow",
    "errors",
    "graph",
    "input_source",
    "monitors",
    "plugin",
    "predict",
    "session",
    "strategies",
    "tower",
    "train",
)
_NAMESPACES = ("layers",)
"""Rooms whose names are not also names of `tpk`."""


def __getattr__(name: str) -> Any:
    if name in _ROOMS or name in _NAMESPACES:
        return importlib.import_module(f"tpk.{name}")
    if name == "__all__":
        return __dir__()
    if not name.startswith("_"):
        for room in map(importlib.import_module, (f"tpk.{room}" for room in _ROOMS)):
            if name in room.__all__:
                value = getattr(room, name)
                globals()[name] = value  # found directly from now on
                return value
    from tpk.other_libraries import instead_of
    from tpk.plugin.builtins import PACKAGES, where_to_find

    hint = f". {where_to_find(name)} Write `from {PACKAGES[name]} import {name}`." if name in PACKAGES else ""
    raise AttributeError(instead_of(name) or f"module 'tpk' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    public = {name for room in _ROOMS for name in importlib.import_module(f"tpk.{room}").__all__}
    return sorted({*public, *_ROOMS, *_NAMESPACES, "__version__"})
