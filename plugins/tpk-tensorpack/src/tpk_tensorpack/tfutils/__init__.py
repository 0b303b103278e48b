"""tensorpack's `tfutils`: utilities around TensorFlow."""

from __future__ import annotations

from tpk_tensorpack.tfutils import gradproc, optimizer, sesscreate, sessinit, summary, tower, varreplace
from tpk_tensorpack.tfutils.argscope import (
    argscope,
    enable_argscope_for_function,
    enable_argscope_for_module,
    get_arg_scope,
)
from tpk_tensorpack.tfutils.common import (
    collect_env_info,
    get_default_sess_config,
    get_global_step_value,
    get_global_step_var,
    get_tf_version_tuple,
)
from tpk_tensorpack.tfutils.sessinit import (
    ChainInit,
    DictRestore,
    JustCurrentSession,
    SaverRestore,
    SaverRestoreRelaxed,
    SessionInit,
    SmartInit,
    get_model_loader,
)
from tpk_tensorpack.tfutils.tower import TowerContext, get_current_tower_context

__all__ = [
    "ChainInit",
    "DictRestore",
    "JustCurrentSession",
    "SaverRestore",
    "SaverRestoreRelaxed",
    "SessionInit",
    "SmartInit",
    "TowerContext",
    "argscope",
    "collect_env_info",
    "enable_argscope_for_function",
    "enable_argscope_for_module",
    "get_arg_scope",
    "get_current_tower_context",
    "get_default_sess_config",
    "get_global_step_value",
    "get_global_step_var",
    "get_model_loader",
    "get_tf_version_tuple",
    "gradproc",
    "optimizer",
    "sesscreate",
    "sessinit",
    "summary",
    "tower",
    "varreplace",
]
