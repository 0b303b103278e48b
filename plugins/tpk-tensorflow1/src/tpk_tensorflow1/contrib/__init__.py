"""The parts of `tf.contrib` that have a replacement."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from tpk_tensorflow1.missing import finder_in

_MODULES = sorted(module.name for module in pkgutil.iter_modules(__path__))
_missing = finder_in("tf.contrib", _MODULES)


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}") if name in _MODULES else _missing(name)


def __dir__() -> list[str]:
    return _MODULES
