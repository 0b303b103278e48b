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
from tpk_tensorpack.tfutils.summary import add_moving_summary

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
    """Summarize gradients as ``SummaryGradient/<variable>-grad``, and their moving averages as ``…/rms``.

    See `tpk.graph.SummaryGradient` for the arguments.
    """

    def _write(self, name: str, values: Any) -> None:
        tf.compat.v1.summary.histogram(f"{name}-grad", values, self._collections)
        add_moving_summary(tf.sqrt(tf.reduce_mean(tf.square(values)), name=f"{name}/rms"))
