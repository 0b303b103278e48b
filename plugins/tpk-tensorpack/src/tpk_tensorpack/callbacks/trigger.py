"""Callbacks that trigger other callbacks periodically or enable them conditionally."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tpk

__all__ = ["EnableCallbackIf", "PeriodicCallback", "PeriodicTrigger"]

PeriodicCallback = tpk.PeriodicCallback


class PeriodicTrigger(tpk.PeriodicTrigger):
    """Trigger a callback periodically; see `tpk.PeriodicTrigger`.

    Args:
        triggerable: the callback.
        every_k_steps: the period in steps.
        every_k_epochs: the period in epochs.
        before_train: whether to also trigger before the first epoch.
    """

    def __init__(
        self,
        triggerable: Any,
        every_k_steps: int | None = None,
        every_k_epochs: int | None = None,
        before_train: bool = False,
    ) -> None:
        super().__init__(triggerable, every_k_steps, every_k_epochs, before_train)


class EnableCallbackIf(tpk.EnableCallbackIf):
    """Call a callback only while a condition holds; see `tpk.EnableCallbackIf`.

    Args:
        callback: the callback.
        pred: takes this callback; returns whether to call `callback`.
    """

    def __init__(self, callback: Any, pred: Callable[[Any], Any]) -> None:
        super().__init__(callback, pred)
