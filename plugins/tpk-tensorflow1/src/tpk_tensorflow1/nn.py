"""`tf.nn`, including ``rnn_cell``."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as _tf

from tpk_tensorflow1.missing import no_such_name


def __getattr__(name: str) -> Any:
    if name == "rnn_cell":
        return importlib.import_module("tpk_tensorflow1.rnn_cell")
    for module in (_tf.compat.v1.nn, _tf.nn):
        if hasattr(module, name):
            return getattr(module, name)
    raise no_such_name("tf.nn", name, __dir__())


def __dir__() -> list[str]:
    return sorted({"rnn_cell", *dir(_tf.compat.v1.nn), *dir(_tf.nn)})
