"""Strategies of tpk adapted to tensorpack: names of optimizer variables, and sums over workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

import tpk
from tpk.graph import Objective
from tpk.strategies import DistributedReplicatedStrategy, Tower


class ReplicatedStrategy(tpk.ReplicatedStrategy):
    """Put non-slot variables of optimizers, such as Adam's powers of its decay rates, under ``apply_gradients/…``."""

    def optimizer_scope(self, index: int) -> AbstractContextManager[Any]:
        """Return the name scope for the non-slot variables of a tower's optimizer."""
        return super().optimizer_scope(index) if index else tf.name_scope("apply_gradients")


class AsyncStrategy(tpk.AsyncStrategy):
    """Put non-slot variables of optimizers under ``async_apply_gradients/…``."""

    def optimizer_scope(self) -> AbstractContextManager[Any]:
        """Return the name scope for the non-slot variables of the optimizer."""
        return tf.name_scope("async_apply_gradients/")


class SumOverWorkersStrategy(DistributedReplicatedStrategy):
    """Average gradients over the towers of a worker, and add them up over the workers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(average=False, **options)

    def reduce_over_towers(
        self, objective: Objective, optimizer: Any, towers: Sequence[Tower]
    ) -> list[tuple[Any, Any]]:
        """Return the mean gradients of this worker's towers, with the variables of the first one."""
        sums = super().reduce_over_towers(objective, optimizer, towers)
        return [(tf.math.scalar_mul(1.0 / len(towers), gradient), variable) for gradient, variable in sums]
