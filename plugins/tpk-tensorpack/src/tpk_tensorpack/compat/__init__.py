"""tensorpack's `compat`: the TensorFlow 1 API, with any installed version."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

from tpk_tensorpack.compat.tensor_spec import TensorSpec

__all__ = ["TensorSpec", "is_tfv2", "tfv1"]


def is_tfv2() -> bool:
    """Return whether this process uses TensorFlow 2 behavior."""
    return bool(tf.compat.v1.executing_eagerly_outside_functions())


def __getattr__(name: str) -> Any:
    if name == "tfv1":
        return importlib.import_module("tpk_tensorflow1")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
