"""Placement of variables on devices."""

from __future__ import annotations

from tpk.strategies.device_setter import LeastLoadedDeviceSetter

__all__ = ["LeastLoadedDeviceSetter"]
