"""What was `tf.contrib.slim`: the package tf_slim, where it is installed."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


def _slim() -> ModuleType:
    try:
        return importlib.import_module("tf_slim")
    except ImportError as error:
        raise ImportError(
            "tf.contrib.slim is the package tf_slim, which cannot be imported: pip install 'tpk-tensorpack[slim]'"
        ) from error


def __getattr__(name: str) -> Any:
    # What Python itself looks for in a module is no reason to import anything.
    if name.startswith("__"):
        raise AttributeError(name)
    slim = _slim()
    try:
        return getattr(slim, name)
    except AttributeError:
        return importlib.import_module(f"tf_slim.{name}")
