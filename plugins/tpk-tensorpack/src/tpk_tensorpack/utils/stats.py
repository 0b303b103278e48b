"""Statistics of numbers that come one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["Accuracy", "BinaryStatistics", "OnlineMoments", "RatioCounter", "StatCounter"]


class StatCounter:
    """Mean, sum, maximum and minimum of numbers; those of none are an error."""

    def __init__(self) -> None:
        self.reset()

    def feed(self, v: float) -> None:
        """Take one more."""
        self._values.append(v)

    def reset(self) -> None:
        """Forget all of them."""
        self._values: list[float] = []

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._values)

    @property
    def average(self) -> Any:
        """Their mean."""
        return np.mean(self._some())

    @property
    def sum(self) -> Any:
        """Their sum."""
        return np.sum(self._some())

    @property
    def max(self) -> Any:
        """The greatest."""
        return max(self._some())

    @property
    def min(self) -> Any:
        """The least."""
        return min(self._some())

    def samples(self) -> list[float]:
        """Return all of them."""
        return self._values

    def _some(self) -> list[float]:
        if not self._values:
            raise ValueError("a StatCounter without numbers has no statistics; feed it first")
        return self._values


class RatioCounter:
    """A count of a total."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start from nothing."""
        self._total = self._count = 0

    def feed(self, count: int, total: int = 1) -> None:
        """Add `count` of `total`."""
        self._total += total
        self._count += count

    @property
    def ratio(self) -> float:
        """The count, divided by the total; 0 of nothing."""
        return self._count / self._total if self._total else 0.0

    @property
    def total(self) -> int:
        """The total."""
        return self._total

    @property
    def count(self) -> int:
        """The count."""
        return self._count


class Accuracy(RatioCounter):
    """A ratio of what is right."""

    @property
    def accuracy(self) -> float:
        """The ratio."""
        return self.ratio


class BinaryStatistics:
    """Precision, recall, and rates of errors of decisions between 0 and 1."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all decisions."""
        self.nr_pos = self.nr_neg = 0
        self.nr_pred_pos = self.nr_pred_neg = 0
        self.corr_pos = self.corr_neg = 0

    def feed(self, pred: Any, label: Any) -> None:
        """Take decisions, and what they should have been.

        Args:
            pred: an array of zeros and ones.
            label: another one of the same shape.
        """
        pred, label = np.asarray(pred), np.asarray(label)
        if pred.shape != label.shape:
            raise ValueError(f"decisions of shape {pred.shape}, labels of shape {label.shape}; expected equal shapes")
        self.nr_pos += int((label == 1).sum())
        self.nr_neg += int((label == 0).sum())
        self.nr_pred_pos += int((pred == 1).sum())
        self.nr_pred_neg += int((pred == 0).sum())
        self.corr_pos += int(((pred == 1) & (label == 1)).sum())
        self.corr_neg += int(((pred == 0) & (label == 0)).sum())

    @property
    def precision(self) -> float:
        """The share of what was decided to be 1 that is; 0 if nothing was."""
        return self.corr_pos / self.nr_pred_pos if self.nr_pred_pos else 0.0

    @property
    def recall(self) -> float:
        """The share of what is 1 that was decided so; 0 if nothing is."""
        return self.corr_pos / self.nr_pos if self.nr_pos else 0.0

    @property
    def false_positive(self) -> float:
        """The share of what is 0 that was decided to be 1; 0 if nothing is."""
        return 1 - self.corr_neg / self.nr_neg if self.nr_neg else 0.0

    @property
    def false_negative(self) -> float:
        """The share of what is 1 that was decided to be 0; 0 if nothing is."""
        return 1 - self.corr_pos / self.nr_pos if self.nr_pos else 0.0


class OnlineMoments:
    """Mean and variance (of the population) of numbers, of which none is kept.

    By Welford's method: Knuth, The Art of Computer Programming, volume 2, section 4.2.2.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def feed(self, x: float | Iterable[float]) -> None:
        """Take one number, or several."""
        for each in x if isinstance(x, Iterable) else [x]:
            self._count += 1
            delta = each - self._mean
            self._mean += delta / self._count
            self._squares += delta * (each - self._mean)

    @property
    def mean(self) -> float:
        """The mean."""
        return self._mean

    @property
    def variance(self) -> float:
        """The mean of the squared distances from the mean."""
        return self._squares / self._count

    @property
    def std(self) -> float:
        """The square root of the variance."""
        return math.sqrt(self.variance)
