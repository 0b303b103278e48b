"""Curves of statistics, and their moving averages."""

from __future__ import annotations

import attrs
import numpy as np


@attrs.frozen(eq=False)
class Curve:
    """A statistic of a run.

    Attributes:
        run: the name of the run.
        color: that of the run, in all plots.
        x: where its values were reported.
        values: what was reported.
        smooth: the moving average; the same array where none was asked for.
    """

    run: str
    color: str
    x: np.ndarray
    values: np.ndarray
    smooth: np.ndarray


def smoothed(values: np.ndarray, weight: float) -> np.ndarray:
    """Return the moving average of `values`, in which a former one counts `weight` times as much as the next.

    It is not drawn towards 0 at the beginning: the weights of those that there are sum up to 1 (the correction of
    Kingma and Ba, "Adam", 2014, section 3). What is no finite number is left out of it, and stays as it is.

    Args:
        values: the values.
        weight: from 0, for `values` themselves, to less than 1.
    """
    if not weight:
        return values
    result, average, total = values.copy(), 0.0, 0.0
    for position in np.flatnonzero(np.isfinite(values)):
        average = weight * average + (1 - weight) * values[position]
        total = weight * total + (1 - weight)
        result[position] = average / total
    return result
