"""The heads of canned classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpk_estimator.heads import Head, MultiClassHead, TrapezoidalBinaryClassHead


def class_head(n_classes: int, weight_column: Any, label_vocabulary: Sequence[str] | None, loss_reduction: str) -> Head:
    """Return the head of a classifier with this number of classes."""
    if n_classes == 2:
        return TrapezoidalBinaryClassHead(weight_column, (), label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)
