"""tensorpack's names, implemented with tpk.

``from tpk_tensorpack import *`` imports the names that tensorpack's packages export, the packages themselves, and the
modules ``logger``, ``summary``, ``optimizer``, …. Modules are imported lazily.
"""

from __future__ import annotations

import importlib
from typing import Any

import tpk_tensorflow1 as tfv1

from tpk_tensorpack.libinfo import __git_version__, __version__

_ROOMS = ("callbacks", "dataflow", "graph_builder", "input_source", "models", "predict", "tfutils", "train", "utils")
_OLDER = ("train.older", "utils.gpu")
"""Modules with names from before these packages existed."""
_MODULES = {
    **{name: f"tfutils.{name}" for name in ("gradproc", "optimizer", "sesscreate", "sessinit", "summary", "tower")},
    "symbolic_functions": "tfutils.symbolic_functions",
    "varreplace": "tfutils.varreplace",
    "logger": "utils.logger",
    "compat": "compat",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _ROOMS or name in _MODULES:
        return _module(_MODULES.get(name, name))
    for module in map(_module, (*_ROOMS, *_OLDER)):
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    names = {name for module in map(_module, (*_ROOMS, *_OLDER)) for name in module.__all__}
    return sorted({*names, *_ROOMS, *_MODULES, "tfv1"})


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
