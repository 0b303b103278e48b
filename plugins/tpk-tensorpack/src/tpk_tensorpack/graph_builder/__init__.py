"""tensorpack's `graph_builder`: where variables are placed."""

from __future__ import annotations

from tpk_tensorpack.graph_builder.utils import LeastLoadedDeviceSetter

__all__ = ["LeastLoadedDeviceSetter"]
