"""`tf.compat`, with `tpk_tensorflow1` as ``v1``."""

from __future__ import annotations

from typing import Any

import tensorflow as _tf

import tpk_tensorflow1 as v1

__all__ = ["v1"]


def __getattr__(name: str) -> Any:
    return getattr(_tf.compat, name)
