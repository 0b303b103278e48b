"""`tf.contrib.slim.nets`: the networks of the package tf_slim, built of the layers of `tf.contrib.layers`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tpk_tensorflow1.missing import finder_in, from_library
from tpk_tensorflow1.runner.imports import compiled

_missing = finder_in("tf.contrib.slim.nets", ())


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        return _missing(name)
    path = Path(from_library("tf_slim.nets", "tf.contrib.slim.nets", name).__file__)
    network = ModuleType(f"{__name__}.{name}")
    network.__file__ = str(path)
    exec(compiled(path.read_bytes(), str(path), {"tf_slim": "tensorflow.contrib.slim"}), network.__dict__)
    return sys.modules.setdefault(network.__name__, network)
