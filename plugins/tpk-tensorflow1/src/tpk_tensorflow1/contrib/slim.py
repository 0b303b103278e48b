"""`tf.contrib.slim`: the layers and functions of `tf.contrib.layers` and `tf.contrib.framework`.

Other modules, such as ``nets``, ``learning`` and ``data``, come from the package tf_slim.
"""

from __future__ import annotations

import importlib
from typing import Any

from tpk_tensorflow1.contrib import framework, layers

__all__ = sorted({*layers.__all__, *framework.__all__, "layers"})


def __getattr__(name: str) -> Any:
    # Python itself looks up names such as `__path__`.
    if name.startswith("__"):
        raise AttributeError(name)
    for module in (layers, framework):
        if name in module.__all__:
            return getattr(module, name)
    try:
        slim = importlib.import_module("tf_slim")
    except ImportError as error:
        raise ImportError(
            f"tf.contrib.slim.{name} is in the package tf_slim, which cannot be imported: "
            "pip install 'tpk-tensorflow1[slim]'"
        ) from error
    try:
        return getattr(slim, name)
    except AttributeError:
        return importlib.import_module(f"tf_slim.{name}")


def __dir__() -> list[str]:
    return __all__
