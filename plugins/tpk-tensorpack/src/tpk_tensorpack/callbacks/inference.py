"""Inferencers: what an evaluation computes from each batch, and reports at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tpk

__all__ = ["BinaryClassificationStats", "ClassificationError", "Inferencer", "ScalarStats"]


class Inferencer(tpk.Inferencer):
    """Takes some tensors of each batch of an `InferenceRunner`, and reports statistics at the end.

    A class overrides ``_get_fetches``, which returns names of tensors in the tower; ``_on_fetches``, which takes a list
    of their values; ``_before_inference``, and ``_after_inference``, which returns a dict of statistics, or None.

    Example:
        ```python
        class LargestCost(Inferencer):
            def _get_fetches(self):
                return ["cost"]

            def _before_inference(self):
                self.largest = -np.inf

            def _on_fetches(self, results):
                self.largest = max(self.largest, results[0])

            def _after_inference(self):
                return {"largest_cost": self.largest}
        ```
    """

    def get_fetches(self, tower: Any) -> Any:
        """Return the tensors to fetch."""
        return [tower.get_tensor(each) if isinstance(each, str) else each for each in self._get_fetches()]

    def _get_fetches(self) -> Sequence[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not say what to fetch: define _get_fetches")

    def before_inference(self) -> None:
        """Forget the last pass."""
        self._before_inference()

    def _before_inference(self) -> None:
        pass

    def on_fetches(self, results: Any) -> None:
        """Take the values of a batch."""
        self._on_fetches(results)

    def _on_fetches(self, results: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not take what was fetched: define _on_fetches")

    def after_inference(self) -> Mapping[str, float]:
        """Return the statistics."""
        return self._after_inference() or {}

    def _after_inference(self) -> Mapping[str, float] | None:
        return None


class ScalarStats(tpk.ScalarStats):
    """The means of scalars over the batches, as ``<prefix>_<name>``, with the scopes of the name.

    Args:
        names: a name of a scalar in the tower, or several.
        prefix: what the names of the statistics begin with; empty for nothing.
    """

    @property
    def statistics(self) -> Sequence[str]:
        """The names of the means."""
        prefix = f"{self.prefix}_" if self.prefix else ""
        return [prefix + name.removesuffix(":0") for name in self.names]


class ClassificationError(tpk.ClassificationError):
    """The share of wrong predictions among all examples; see `tpk.ClassificationError`."""


class BinaryClassificationStats(tpk.BinaryClassificationStats):
    """Precision and recall, as ``<prefix>_precision`` and ``<prefix>_recall``.

    Args:
        pred_tensor_name: a vector in the tower, of 0 and 1.
        label_tensor_name: likewise.
        prefix: what the names begin with.
    """

    def __init__(self, pred_tensor_name: str, label_tensor_name: str, prefix: str = "val") -> None:
        super().__init__(pred_tensor_name, label_tensor_name, prefix)

    @property
    def statistics(self) -> Sequence[str]:
        """The names of both."""
        return [f"{self.prefix}_precision", f"{self.prefix}_recall"]

    def after_inference(self) -> Mapping[str, float]:
        """Return both."""
        hits, predicted, labelled = (int(np.ravel(each)[0]) for each in self._counts)
        return dict(zip(self.statistics, (hits / max(predicted, 1), hits / max(labelled, 1)), strict=True))
