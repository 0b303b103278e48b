"""Running statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tpk_tensorpack.errors import CheckError

__all__ = ["Accuracy", "BinaryStatistics", "OnlineMoments", "RatioCounter", "StatCounter"]


class StatCounter:
    """Mean, sum, maximum and minimum of numbers; without numbers they are an error."""

    def __init__(self) -> None:
        self.reset()

    def feed(self, v: float) -> None:
        """Add a number."""
        self._values.append(v)

    def reset(self) -> None:
        """Remove all numbers."""
        self._values: list[float] = []

    @property
    def count(self) -> int:
        """The count of numbers."""
        return len(self._values)

    @property
    def average(self) -> Any:
        """The mean."""
        return np.mean(self._some())

    @property
    def sum(self) -> Any:
        """The sum."""
        return np.sum(self._some())

    @property
    def max(self) -> Any:
        """The maximum."""
        return max(self._some())

    @property
    def min(self) -> Any:
        """The minimum."""
        return min(self._some())

    def samples(self) -> list[float]:
        """Return all numbers."""
        return self._values

    def _some(self) -> list[float]:
        if not self._values:
            raise CheckError("a StatCounter without numbers has no statistics; feed it first")
        return self._values


class RatioCounter:
    """A count out of a total.

    Attributes:
        count: the count.
        total: the total.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset both to 0."""
        self.total = self.count = 0

    def feed(self, count: int, total: int = 1) -> None:
        """Add `count` out of `total`."""
        self.total += total
        self.count += count

    @property
    def ratio(self) -> float:
        """The count divided by the total; 0 if the total is 0."""
        return self.count / self.total if self.total else 0.0


class Accuracy(RatioCounter):
    """The fraction of correct answers."""

    @property
    def accuracy(self) -> float:
        """The fraction."""
        return self.ratio


class BinaryStatistics:
    """Precision, recall and error rates of binary predictions."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Remove all predictions."""
        self.nr_pos = self.nr_neg = 0
        self.nr_pred_pos = self.nr_pred_neg = 0
        self.corr_pos = self.corr_neg = 0

    def feed(self, pred: Any, label: Any) -> None:
        """Add predictions and their labels.

        Args:
            pred: an array of zeros and ones.
            label: another one of the same shape.
        """
        pred, label = np.asarray(pred), np.asarray(label)
        if pred.shape != label.shape:
            raise CheckError(f"predictions of shape {pred.shape}, labels of shape {label.shape}; expected equal shapes")
        self.nr_pos += int((label == 1).sum())
        self.nr_neg += int((label == 0).sum())
        self.nr_pred_pos += int((pred == 1).sum())
        self.nr_pred_neg += int((pred == 0).sum())
        self.corr_pos += int(((pred == 1) & (label == 1)).sum())
        self.corr_neg += int(((pred == 0) & (label == 0)).sum())

    @property
    def precision(self) -> float:
        """The fraction of positive predictions that are correct; 0 without any."""
        return self.corr_pos / self.nr_pred_pos if self.nr_pred_pos else 0.0

    @property
    def recall(self) -> float:
        """The fraction of positive labels that are predicted correctly; 0 without any."""
        return self.corr_pos / self.nr_pos if self.nr_pos else 0.0

    @property
    def false_positive(self) -> float:
        """The fraction of negative labels that are predicted as positive; 0 without any."""
        return 1 - self.corr_neg / self.nr_neg if self.nr_neg else 0.0

    @property
    def false_negative(self) -> float:
        """The fraction of positive labels that are predicted as negative; 0 without any."""
        return 1 - self.corr_pos / self.nr_pos if self.nr_pos else 0.0


class OnlineMoments:
    """Mean and population variance of numbers, without storing them.

    Uses Welford's method: Knuth, The Art of Computer Programming, volume 2, section 4.2.2.

    Attributes:
        mean: the mean.
    """

    def __init__(self) -> None:
        self._count = 0
        self.mean = 0.0
        self._squares = 0.0

    def feed(self, x: float | Iterable[float]) -> None:
        """Add one number or several."""
        for each in x if isinstance(x, Iterable) else [x]:
            self._count += 1
            delta = each - self.mean
            self.mean += delta / self._count
            self._squares += delta * (each - self.mean)

    @property
    def variance(self) -> float:
        """The population variance."""
        return self._squares / self._count

    @property
    def std(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)
