"""Triggers: the times at which callbacks do their part, or the condition under which they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tpk

__all__ = ["EnableCallbackIf", "PeriodicCallback", "PeriodicTrigger"]

PeriodicCallback = tpk.PeriodicCallback


class PeriodicTrigger(tpk.PeriodicTrigger):
    """Triggers a callback every so often; see `tpk.PeriodicTrigger`.

    Args:
        triggerable: the callback.
        every_k_steps: every so many steps.
        every_k_epochs: every so many epochs.
        before_train: before the first epoch, too.
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
    """Has a callback called only while a condition holds; see `tpk.EnableCallbackIf`.

    Args:
        callback: the callback.
        pred: whether it is called now; takes this callback.
    """

    def __init__(self, callback: Any, pred: Callable[[Any], Any]) -> None:
        super().__init__(callback, pred)
