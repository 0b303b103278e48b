"""Callbacks and TensorFlow's `SessionRunHook`s, each as the other."""

from __future__ import annotations

import tpk

__all__ = ["CallbackToHook", "HookToCallback"]

CallbackToHook = tpk.CallbackToHook
HookToCallback = tpk.HookToCallback
