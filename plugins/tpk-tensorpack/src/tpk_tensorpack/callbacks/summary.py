"""Callbacks that pass summaries in the graph to the monitors."""

from __future__ import annotations

import tensorflow as tf

import tpk
from tpk_tensorpack.callbacks.base import Callback

__all__ = ["MergeAllSummaries", "MovingAverageSummary", "SimpleMovingAverage"]


class MovingAverageSummary(Callback, tpk.MovingAverageSummary):
    """Update the moving averages of `add_moving_summary` in each step; see `tpk.MovingAverageSummary`."""


class MergeAllSummaries(Callback, tpk.MergeAllSummaries):
    """Evaluate all summaries in every run of an epoch's last step; see `tpk.MergeAllSummaries`.

    Args:
        period: also evaluate them every `period` steps of an epoch; 0 for only the last step.
        run_alone: whether to use a separate session run.
        key: the name of the collection; by default ``SUMMARIES``.
    """

    _once_in_a_step = False

    def __init__(self, period: int = 0, run_alone: bool = False, key: str | None = None) -> None:
        super().__init__(period, run_alone, key or tf.compat.v1.GraphKeys.SUMMARIES)


class SimpleMovingAverage(Callback, tpk.SimpleMovingAverage):
    """Report the averages of scalars over the last steps; see `tpk.SimpleMovingAverage`."""
