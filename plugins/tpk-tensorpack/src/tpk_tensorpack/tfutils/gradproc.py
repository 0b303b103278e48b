"""Gradient processors, applied between the cost and the optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import tpk.graph
from tpk.graph import (
    CheckGradient,
    FilterNoneGrad,
    GlobalNormClip,
    GradientProcessor,
    MapGradient,
    PrintGradient,
    ScaleGradient,
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


class SummaryGradient(tpk.graph.SummaryGradient):
    """Summarize gradients as ``SummaryGradient/<variable>-grad`` and ``…/rms``; see `tpk.graph.SummaryGradient`."""

    def _write(self, name: str, values: Any) -> None:
        tf.compat.v1.summary.histogram(f"{name}-grad", values, self._collections)
        rms = tf.sqrt(tf.reduce_mean(tf.square(values)))
        tf.compat.v1.summary.scalar(f"{name}/rms", rms, self._collections)
