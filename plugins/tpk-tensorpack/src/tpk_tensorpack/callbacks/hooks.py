"""Adapters between callbacks and TensorFlow's `SessionRunHook`."""

from __future__ import annotations

from typing import Any

import tpk
from tpk_tensorpack.callbacks.graph import TFLocalCLIDebugHook

__all__ = ["CallbackToHook", "HookToCallback", "TFLocalCLIDebugHook"]

HookToCallback = tpk.HookToCallback


class CallbackToHook(tpk.CallbackToHook):
    """A callback as a hook, for sessions without a trainer; see `tpk.CallbackToHook`.

    Args:
        cb: the callback.
    """

    def __init__(self, cb: Any) -> None:
        super().__init__(cb)
