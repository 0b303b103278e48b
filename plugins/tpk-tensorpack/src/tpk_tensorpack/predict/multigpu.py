"""Predictors with a tower on each of several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk_tensorpack.predict.base import OnlinePredictor
from tpk_tensorpack.predict.config import PredictConfig

__all__ = ["DataParallelOfflinePredictor", "MultiTowerOfflinePredictor"]


class MultiTowerOfflinePredictor(OnlinePredictor):
    """Predictors of one model, one for each tower, which share their variables. Called as it is, it is the first.

    Args:
        config: the model, its values, inputs and outputs.
        towers: the numbers of the GPUs, one for each tower; where there is no GPU, all are on the CPU.

    Raises:
        ValueError: there is no tower.
    """

    def __init__(self, config: PredictConfig, towers: Sequence[int]) -> None:
        self.predictors: list[OnlinePredictor] = []
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
        """Return the predictor of a tower; beyond the last one it goes on with the first."""
        return self.predictors[n % len(self.predictors)]

    def get_predictors(self) -> list[OnlinePredictor]:
        """Return the predictors of all towers."""
        return list(self.predictors)


class DataParallelOfflinePredictor(OnlinePredictor):
    """A predictor that takes the inputs of all towers, one tower after the other, and returns all outputs so.

    Args:
        config: the model, its values, inputs and outputs.
        towers: see `MultiTowerOfflinePredictor`.

    Raises:
        ValueError: there is no tower.

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
        raise ValueError(f"{type(owner).__name__} got towers={towers!r}: give the numbers of GPUs, one for each tower")
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return config.build_graph([f"/gpu:{number}" if has_gpu else "/cpu:0" for number in towers])
