"""SciPy, including the functions for images that SciPy 1.3 removed."""

import importlib
from typing import Any

import scipy


def __getattr__(name: str) -> Any:
    if name in ("misc", "ndimage"):
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(scipy, name)
