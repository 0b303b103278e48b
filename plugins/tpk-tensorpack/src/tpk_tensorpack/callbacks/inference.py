"""Inferencers: compute statistics from the batches of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tpk

__all__ = ["BinaryClassificationStats", "ClassificationError", "Inferencer", "ScalarStats"]


class Inferencer(tpk.Inferencer):
    """Fetch tensors for each batch of an `InferenceRunner`, and report statistics at the end.

    A subclass overrides ``_get_fetches``, which returns names of tensors in the tower; ``_on_fetches``, which takes a
    list of their values; ``_before_inference``; and ``_after_inference``, which returns a dict of statistics or None.

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

    epoch_num = tpk.Callback.epoch_num
    global_step = tpk.Callback.global_step
    local_step = tpk.Callback.local_step

    def _setup_graph(self) -> None:
        """Called once, after the tower of the evaluation has been built."""

    # A runner calls the methods without underscore; by default, they call the next class.

    def get_fetches(self, tower: Any) -> Any:
        """Return the tensors to fetch."""
        if type(self)._get_fetches is Inferencer._get_fetches:
            return self._next("get_fetches", "say what to fetch")(tower)
        return [tower.get_tensor(each) if isinstance(each, str) else each for each in self._get_fetches()]

    def _get_fetches(self) -> Sequence[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not name the tensors to fetch: define _get_fetches")

    def before_inference(self) -> None:
        """Reset before a pass."""
        self._before_inference()

    def _before_inference(self) -> None:
        super().before_inference()

    def on_fetches(self, results: Any) -> None:
        """Process the values of a batch."""
        self._on_fetches(results)

    def _on_fetches(self, results: Any) -> None:
        self._next("on_fetches", "take what was fetched")(results)

    def after_inference(self) -> Mapping[str, float]:
        """Return the statistics."""
        return self._after_inference() or {}

    def _after_inference(self) -> Mapping[str, float] | None:
        return super().after_inference()

    def _next(self, name: str, what: str) -> Any:
        method = getattr(super(), name)
        if getattr(method, "__isabstractmethod__", False):
            raise NotImplementedError(f"{type(self).__name__} does not {what}: define _{name}")
        return method


class _MeanOverBatches(tpk.ScalarStats):
    """Give each batch the same weight, whatever its size."""

    def get_fetches(self, tower: Any) -> Any:
        return super().get_fetches(tower)[:-1]

    def on_fetches(self, results: Any) -> None:
        super().on_fetches((*results, 1))


class ScalarStats(Inferencer, _MeanOverBatches):
    """Report the means of scalars over equally weighted batches, as ``<prefix>_<name>``, with the name's scopes.

    Args:
        names: the name of a scalar in the tower, or several.
        prefix: the prefix of the statistics' names; may be empty.
    """

    @property
    def statistics(self) -> Sequence[str]:
        """The names of the statistics."""
        prefix = f"{self.prefix}_" if self.prefix else ""
        return [prefix + name.removesuffix(":0") for name in self.names]


class ClassificationError(Inferencer, tpk.ClassificationError):
    """Report the fraction of wrong predictions over all examples; see `tpk.ClassificationError`."""


class BinaryClassificationStats(Inferencer, tpk.BinaryClassificationStats):
    """Report precision and recall, as ``<prefix>_precision`` and ``<prefix>_recall``.

    Args:
        pred_tensor_name: a tensor in the tower of any shape, with elements 0 and 1.
        label_tensor_name: likewise.
        prefix: the prefix of the statistics' names.
    """

    @property
    def statistics(self) -> Sequence[str]:
        """The names of the statistics."""
        return [f"{self.prefix}_precision", f"{self.prefix}_recall"]

    def _get_fetches(self) -> Any:
        return [self.pred_tensor_name, self.label_tensor_name]

    def _on_fetches(self, results: Any) -> None:
        super()._on_fetches(tuple(np.ravel(each) for each in results))

    def _after_inference(self) -> Mapping[str, float]:
        hits, predicted, labelled = self._counts.tolist()
        return dict(zip(self.statistics, (hits / max(predicted, 1), hits / max(labelled, 1)), strict=True))
