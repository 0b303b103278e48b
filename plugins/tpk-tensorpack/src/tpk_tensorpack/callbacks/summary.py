"""Callbacks that bring what the graph summarizes to the monitors."""

from __future__ import annotations

import tensorflow as tf

import tpk
from tpk_tensorpack.callbacks.base import Callback

__all__ = ["MergeAllSummaries", "MovingAverageSummary", "SimpleMovingAverage"]


class MovingAverageSummary(Callback, tpk.MovingAverageSummary):
    """Maintains the moving averages of `add_moving_summary` in each step; see `tpk.MovingAverageSummary`."""


class MergeAllSummaries(Callback, tpk.MergeAllSummaries):
    """Evaluates all summaries along with the last step of each epoch, in each of its runs; see `tpk.MergeAllSummaries`.

    Args:
        period: and after each so many steps of an epoch; 0 for its end only.
        run_alone: in a run of their own.
        key: the collection; by default that of the summaries.
    """

    _once_in_a_step = False

    def __init__(self, period: int = 0, run_alone: bool = False, key: str | None = None) -> None:
        super().__init__(period, run_alone, key or tf.compat.v1.GraphKeys.SUMMARIES)


class SimpleMovingAverage(Callback, tpk.SimpleMovingAverage):
    """Reports the averages of scalars over the last steps; see `tpk.SimpleMovingAverage`."""
