"""`tf.contrib.slim.nets`: the networks of the package tf_slim, built of the layers of `tf.contrib.layers`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tpk_tensorflow1.missing import finder_in, from_library
from tpk_tensorflow1.runner.imports import compiled

_NETWORKS = (
    "alexnet",
    "inception",
    "inception_v1",
    "inception_v2",
    "inception_v3",
    "overfeat",
    "resnet_utils",
    "resnet_v1",
    "resnet_v2",
    "vgg",
)

_missing = finder_in("tf.contrib.slim.nets", _NETWORKS)


def __getattr__(name: str) -> Any:
    if name not in _NETWORKS:
        return _missing(name)
    path = Path(from_library("tf_slim.nets", "tf.contrib.slim.nets", name, ()).__file__)
    network = ModuleType(f"{__name__}.{name}")
    network.__file__ = str(path)
    exec(compiled(path.read_bytes(), str(path), {"tf_slim": "tensorflow.contrib.slim"}), network.__dict__)
    return sys.modules.setdefault(network.__name__, network)


def __dir__() -> list[str]:
    return list(_NETWORKS)
