"""Trainers of models that are tower functions."""

from __future__ import annotations

from typing import Any

import tpk
from tpk_tensorpack.train.base import Trainer

__all__ = ["SingleCostTrainer", "TowerTrainer"]


class TowerTrainer(Trainer, tpk.TowerTrainer):
    """A trainer that has a tower function; see `tpk.TowerTrainer`."""

    @property
    def input_signature(self) -> list[Any]:  # type: ignore[override]
        """The `tf.TensorSpec`s of the inputs."""
        return list(self.tower_func.input_signature)


class SingleCostTrainer(TowerTrainer, tpk.SingleCostTrainer):
    """Trains a model with one cost and one optimizer; see `tpk.SingleCostTrainer`."""
