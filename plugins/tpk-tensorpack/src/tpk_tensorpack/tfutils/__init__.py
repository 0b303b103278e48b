"""tensorpack's `tfutils`: utilities around TensorFlow."""

from __future__ import annotations

from tpk_tensorpack.tfutils import (
    common,
    gradproc,
    optimizer,
    sesscreate,
    sessinit,
    summary,
    tower,
    varreplace,
)
from tpk_tensorpack.tfutils.argscope import (
    argscope,
    enable_argscope_for_function,
    enable_argscope_for_module,
    get_arg_scope,
)
from tpk_tensorpack.tfutils.common import *
from tpk_tensorpack.tfutils.sessinit import *
from tpk_tensorpack.tfutils.tower import TowerContext, get_current_tower_context

__all__ = [
    "TowerContext",
    "argscope",
    "enable_argscope_for_function",
    "enable_argscope_for_module",
    "get_arg_scope",
    "get_current_tower_context",
    "gradproc",
    "optimizer",
    "sesscreate",
    "sessinit",
    "summary",
    "tower",
    "varreplace",
    *common.__all__,
    *sessinit.__all__,
]
