"""How one step is replicated over devices and processes; one file a strategy."""

from __future__ import annotations

from tpk.strategies.base import Strategy
from tpk.strategies.single import SingleStrategy

__all__ = ["SingleStrategy", "Strategy"]
