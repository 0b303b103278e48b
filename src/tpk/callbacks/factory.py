"""Callbacks made of functions."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from tpk.errors import HookError
from tpk.plugin import Callback


class CallbackFactory(Callback):
    """A callback made of functions: one for each hook that it implements, and no more.

    Each function takes the callback as its first argument, and may take the arguments of the hook after it.

    Args:
        setup_graph: ``(self)`` or ``(self, trainer)``.
        before_train: ``(self)`` or ``(self, trainer)``.
        trigger_epoch: ``(self)`` or ``(self, trainer)``.
        after_train: ``(self)`` or ``(self, trainer)``.
        before_epoch: ``(self)`` or ``(self, trainer)``.
        before_run: ``(self)`` or ``(self, run_context)``; returns what to run along with the step.
        after_run: ``(self)``, ``(self, run_values)`` or ``(self, run_context, run_values)``.
        trigger_step: ``(self)`` or ``(self, trainer)``.
        after_epoch: ``(self)`` or ``(self, trainer)``.
        translate_error: ``(self)`` or ``(self, error)``.
        recover: ``(self)`` or ``(self, error)``.
        before_checkpoint: ``(self)``.
        trigger: ``(self)`` or ``(self, trainer)``; called at the end of each epoch, or when `PeriodicTrigger` says.

    Raises:
        HookError: if something else than a function is given.

    Example:
        ```python
        CallbackFactory(trigger_epoch=lambda self: print("done with epoch", self.epoch_num))
        ```
    """

    def __init__(
        self,
        setup_graph: Callable[..., None] | None = None,
        before_train: Callable[..., None] | None = None,
        trigger_epoch: Callable[..., None] | None = None,
        after_train: Callable[..., None] | None = None,
        *,
        before_epoch: Callable[..., None] | None = None,
        before_run: Callable[..., Any] | None = None,
        after_run: Callable[..., None] | None = None,
        trigger_step: Callable[..., None] | None = None,
        after_epoch: Callable[..., None] | None = None,
        translate_error: Callable[..., BaseException | None] | None = None,
        recover: Callable[..., bool | None] | None = None,
        before_checkpoint: Callable[..., None] | None = None,
        trigger: Callable[..., None] | None = None,
    ) -> None:
        functions = {
            "setup_graph": setup_graph,
            "before_train": before_train,
            "before_epoch": before_epoch,
            "before_run": before_run,
            "after_run": after_run,
            "trigger_step": trigger_step,
            "after_epoch": after_epoch,
            "trigger_epoch": trigger_epoch,
            "after_train": after_train,
            "translate_error": translate_error,
            "recover": recover,
            "before_checkpoint": before_checkpoint,
            "trigger": trigger,
        }
        for name, function in functions.items():
            if function is None:
                continue
            if not callable(function):
                raise HookError(f"CallbackFactory({name}=...) takes a function of the callback, but got {function!r}.")
            # A method in the instance is an override for this instance alone.
            vars(self)[name] = MethodType(function, self)
