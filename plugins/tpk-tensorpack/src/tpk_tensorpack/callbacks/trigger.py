"""Triggers: the times at which callbacks do their part, or the condition under which they run."""

from __future__ import annotations

import tpk

__all__ = ["EnableCallbackIf", "PeriodicCallback", "PeriodicTrigger"]

EnableCallbackIf = tpk.EnableCallbackIf
PeriodicCallback = tpk.PeriodicCallback
PeriodicTrigger = tpk.PeriodicTrigger
