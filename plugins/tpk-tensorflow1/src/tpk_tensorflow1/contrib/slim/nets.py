"""`tf.contrib.slim.nets`: the networks of the package tf_slim, built of the layers of `tf.contrib.layers`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tpk_tensorflow1.missing import finder_in
from tpk_tensorflow1.runner.imports import compiled

_find = finder_in("tf.contrib.slim.nets", ())


def __getattr__(name: str) -> Any:
    of_library = _find(name)
    if not isinstance(of_library, ModuleType):
        return of_library
    network = ModuleType(f"{__name__}.{name}")
    path = network.__file__ = str(of_library.__file__)
    exec(compiled(Path(path).read_bytes(), path, {"tf_slim": "tensorflow.contrib.slim"}), network.__dict__)
    return sys.modules.setdefault(network.__name__, network)
