"""Predictors with towers on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk_tensorpack.predict.base import OnlinePredictor
from tpk_tensorpack.predict.config import PredictConfig

__all__ = ["DataParallelOfflinePredictor", "MultiTowerOfflinePredictor"]


class MultiTowerOfflinePredictor(OnlinePredictor):
    """Predictors of one model with shared variables, one for each tower. Calling it calls the first predictor.

    Args:
        config: the model, its variables' values, inputs and outputs.
        towers: the GPU number of each tower; without GPUs, all are on the CPU.

    Raises:
        ValueError: `towers` is empty.
    """

    def __init__(self, config: PredictConfig, towers: Sequence[int]) -> None:
        built = _build(self, config, towers)
        self.graph = built.graph
        sess = built.create_session()
        self.predictors = [
            OnlinePredictor(list(tower.inputs.values()), list(tower.outputs.values()), config.return_input, sess)
            for tower in built.towers
        ]
        first = self.predictors[0]
        super().__init__(first.input_tensors, first.output_tensors, config.return_input, sess)

    def get_predictor(self, n: int) -> OnlinePredictor:
        """Return the predictor of a tower; indices beyond the last one wrap around."""
        return self.predictors[n % len(self.predictors)]

    def get_predictors(self) -> list[OnlinePredictor]:
        """Return the predictors of all towers."""
        return list(self.predictors)


class DataParallelOfflinePredictor(OnlinePredictor):
    """A predictor that takes the inputs of all towers, tower by tower, and returns all outputs the same way.

    Args:
        config: the model, its variables' values, inputs and outputs.
        towers: see `MultiTowerOfflinePredictor`.

    Raises:
        ValueError: `towers` is empty.

    Example:
        ```python
        predict = DataParallelOfflinePredictor(config, [0, 1])
        prob0, prob1 = predict(images0, images1)
        ```
    """

    def __init__(self, config: PredictConfig, towers: Sequence[int]) -> None:
        built = _build(self, config, towers)
        self.graph = built.graph
        inputs = [tensor for tower in built.towers for tensor in tower.inputs.values()]
        outputs = [tensor for tower in built.towers for tensor in tower.outputs.values()]
        super().__init__(inputs, outputs, config.return_input, built.create_session())


def _build(owner: Any, config: PredictConfig, towers: Sequence[int]) -> Any:
    if not towers:
        raise ValueError(f"{type(owner).__name__} got towers={towers!r}: expected GPU numbers, one for each tower")
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return config.build_graph([f"/gpu:{number}" if has_gpu else "/cpu:0" for number in towers])
