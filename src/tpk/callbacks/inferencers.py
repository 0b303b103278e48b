"""What an evaluation computes from each batch, and reports at its end."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tpk.errors import ConfigError

if TYPE_CHECKING:
    from tpk.tower import TowerHandle


class Inferencer(abc.ABC):
    """Takes some tensors of each batch of an `InferenceRunner`, and reports statistics at the end of a pass.

    Example:
        ```python
        class LargestCost(Inferencer):
            def get_fetches(self, tower):
                return tower.get_tensor("cost")

            def before_inference(self):
                self.largest = -math.inf

            def on_fetches(self, results):
                self.largest = max(self.largest, float(results))

            def after_inference(self):
                return {"largest-cost": self.largest}
        ```
    """

    @abc.abstractmethod
    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the tensors of the inference tower to fetch, in any structure that `Session.run` takes."""

    @abc.abstractmethod
    def before_inference(self) -> None:
        """Forget the last pass; called before each one."""

    @abc.abstractmethod
    def on_fetches(self, results: Any) -> None:
        """Take the values of the fetches in one batch."""

    @abc.abstractmethod
    def after_inference(self) -> Mapping[str, float]:
        """Return the statistics of the pass, by name."""


class ScalarStats(Inferencer):
    """The mean of scalars over all batches, each batch counting the same.

    Args:
        names: names of scalar tensors in the tower.
        prefix: the statistics are called ``<prefix>_<name>``; empty for just the name.
    """

    def __init__(self, names: str | Sequence[str], prefix: str = "validation") -> None:
        self.names = [names] if isinstance(names, str) else list(names)
        self.prefix = prefix
        self._values: list[list[float]] = []

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the scalars.

        Raises:
            ConfigError: if one of them is not known to be a scalar.
        """
        tensors = tower.get_tensors(self.names)
        for tensor in tensors:
            if tensor.shape.rank != 0:
                raise ConfigError(
                    f"ScalarStats takes scalars, but {tensor.name!r} has shape {tensor.shape}. Reduce it in the model."
                )
        return tensors

    def before_inference(self) -> None:
        """Forget the last pass."""
        self._values = []

    def on_fetches(self, results: Any) -> None:
        """Take the scalars of a batch."""
        self._values.append(results)

    def after_inference(self) -> Mapping[str, float]:
        """Return the means."""
        means = np.mean(np.asarray(self._values, np.float64), axis=0)
        labels = [name.removesuffix(":0").rsplit("/", 1)[-1] for name in self.names]
        prefix = f"{self.prefix}_" if self.prefix else ""
        return {f"{prefix}{label}": float(mean) for label, mean in zip(labels, means, strict=True)}


class ClassificationError(Inferencer):
    """The share of wrong predictions among all examples, exact for batches of different sizes.

    Args:
        wrong_tensor_name: a vector in the tower, with 1 (or true) for each example that was predicted wrongly.
        summary_name: what the statistic is called.
    """

    def __init__(self, wrong_tensor_name: str = "incorrect_vector", summary_name: str = "validation_error") -> None:
        self.wrong_tensor_name = wrong_tensor_name
        self.summary_name = summary_name
        self._wrong = 0.0
        self._total = 0

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the vector.

        Raises:
            ConfigError: if it is not known to be a vector.
        """
        tensor = tower.get_tensor(self.wrong_tensor_name)
        if tensor.shape.rank != 1:
            raise ConfigError(
                f"ClassificationError takes a vector with one element for each example, but {tensor.name!r} has "
                f"shape {tensor.shape}."
            )
        return tensor

    def before_inference(self) -> None:
        """Forget the last pass."""
        self._wrong, self._total = 0.0, 0

    def on_fetches(self, results: Any) -> None:
        """Count the wrong ones of a batch."""
        self._wrong += float(np.sum(results))
        self._total += len(results)

    def after_inference(self) -> Mapping[str, float]:
        """Return the share, NaN if there was no example."""
        return {self.summary_name: self._wrong / self._total if self._total else float("nan")}
