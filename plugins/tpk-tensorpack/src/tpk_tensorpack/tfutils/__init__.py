"""tensorpack's `tfutils`: what knows TensorFlow."""

from __future__ import annotations

from tpk_tensorpack.tfutils.argscope import (
    argscope,
    enable_argscope_for_function,
    enable_argscope_for_module,
    get_arg_scope,
)
from tpk_tensorpack.tfutils.tower import TowerContext, get_current_tower_context

__all__ = [
    "TowerContext",
    "argscope",
    "enable_argscope_for_function",
    "enable_argscope_for_module",
    "get_arg_scope",
    "get_current_tower_context",
]
