"""What happens to gradients between the cost and the optimizer."""

from __future__ import annotations

from tpk.graph import (
    CheckGradient,
    FilterNoneGrad,
    GlobalNormClip,
    GradientProcessor,
    MapGradient,
    PrintGradient,
    ScaleGradient,
    SummaryGradient,
)

__all__ = [
    "CheckGradient",
    "FilterNoneGrad",
    "GlobalNormClip",
    "GradientProcessor",
    "MapGradient",
    "PrintGradient",
    "ScaleGradient",
    "SummaryGradient",
]
