"""tensorpack's `tfutils`: utilities around TensorFlow."""

from __future__ import annotations

from tpk_tensorpack.tfutils import gradproc, optimizer, sesscreate, sessinit, summary, tower, varreplace
from tpk_tensorpack.tfutils.argscope import *
from tpk_tensorpack.tfutils.common import *
from tpk_tensorpack.tfutils.sessinit import *
from tpk_tensorpack.tfutils.tower import TowerContext, get_current_tower_context

_MODULES = ("gradproc", "optimizer", "sesscreate", "sessinit", "summary", "tower", "varreplace")

# The classes and functions, and the modules that scripts use by their names.
__all__ = [*_MODULES, *(name for name, value in sorted(vars().items()) if callable(value))]
