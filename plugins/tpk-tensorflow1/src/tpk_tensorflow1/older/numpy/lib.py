"""`numpy.lib`, including functions such as ``pad`` that NumPy 2.0 left to ``numpy``."""

from typing import Any

import numpy

from tpk_tensorflow1.older import numpy as _older


def __getattr__(name: str) -> Any:
    return getattr(numpy.lib if hasattr(numpy.lib, name) else _older, name)
