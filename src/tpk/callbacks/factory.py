"""Callbacks made of functions."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from tpk.errors import HookError
from tpk.plugin import Callback
from tpk.plugin.callback import HOOK_NAMES
from tpk.text import nearest


class CallbackFactory(Callback):
    """A callback made of functions, one for each hook that it implements.

    Args:
        functions: functions by the name of the hook; see `Callback` for the names, which include ``trigger``. Each
            function takes the callback as its first argument, and may take the arguments of the hook after it.

    Raises:
        HookError: if a hook does not exist, or something else than a function is given.

    Example:
        ```python
        CallbackFactory(trigger_epoch=lambda self: print("done with epoch", self.epoch_num))
        ```
    """

    def __init__(self, **functions: Callable[..., Any]) -> None:
        hooks = (*HOOK_NAMES, "trigger")
        for name, function in functions.items():
            if name not in hooks:
                raise HookError(f"CallbackFactory({name}=...): there is no such hook.{nearest(name, hooks)}")
            if not callable(function):
                raise HookError(f"CallbackFactory({name}=...) takes a function of the callback, but got {function!r}.")
            # A method in the instance is an override for this instance alone.
            vars(self)[name] = MethodType(function, self)
