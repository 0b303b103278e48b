"""`tf.nn`, with ``rnn_cell``."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as _tf


def __getattr__(name: str) -> Any:
    if name == "rnn_cell":
        return importlib.import_module("tpk_tensorpack.tensorflow1.rnn_cell")
    for module in (_tf.compat.v1.nn, _tf.nn):
        try:
            return getattr(module, name)
        except AttributeError:
            pass
    raise AttributeError(f"TensorFlow {_tf.__version__} has no tf.nn.{name}, and nothing here stands for it", name=name)


def __dir__() -> list[str]:
    return sorted({"rnn_cell", *dir(_tf.compat.v1.nn), *dir(_tf.nn)})
