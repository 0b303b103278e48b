"""`imp`, which Python 3.12 removed: the functions that load modules."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib import reload
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from tpk_tensorflow1.runner.imports import RewritingFinder

__all__ = ["find_module", "load_module", "load_source", "new_module", "reload"]

_SOURCE = (".py", "r", 1)
_PACKAGE = ("", "", 5)

new_module = ModuleType


def load_source(name: str, pathname: str, file: Any = None) -> ModuleType:
    """Load a source file as the module `name`, with its imports replaced if it belongs to the script."""
    spec: Any = importlib.util.spec_from_file_location(name, pathname)
    for finder in sys.meta_path:
        if isinstance(finder, RewritingFinder):
            finder.adopt(spec)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_module(name: str, path: Sequence[str] | None = None) -> tuple[Any, str, tuple[str, str, int]]:
    """Return the open file, the path and the description of a module, for `load_module`."""
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.origin is None:
        raise ImportError(f"No module named {name!r}", name=name)
    if spec.submodule_search_locations is not None:
        return None, os.path.dirname(spec.origin), _PACKAGE
    return open(spec.origin), spec.origin, _SOURCE


def load_module(name: str, file: Any, filename: str, details: tuple[str, str, int]) -> ModuleType:
    """Load the module that `find_module` has found."""
    return load_source(name, os.path.join(filename, "__init__.py") if details == _PACKAGE else filename)
