"""Strategies of tpk with what tensorpack does in another way: names of what optimizers make, and sums over workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

import tpk
from tpk.graph.gradients import Gradients
from tpk.graph.objective import Objective
from tpk.strategies.parameter_servers.replicated import DistributedReplicatedStrategy
from tpk.strategies.towers import Tower


class ReplicatedStrategy(tpk.ReplicatedStrategy):
    """What optimizers make, other than slots, is called ``apply_gradients/…``: Adam's powers of its decay rates."""

    def optimizer_scope(self, index: int) -> AbstractContextManager[Any]:
        """Return the name scope in which the optimizer of a tower makes what is no slot of a variable."""
        return super().optimizer_scope(index) if index else tf.name_scope("apply_gradients")


class AsyncStrategy(tpk.AsyncStrategy):
    """What optimizers make, other than slots, is called ``async_apply_gradients/…``."""

    def optimizer_scope(self) -> AbstractContextManager[Any]:
        """Return the name scope in which the optimizer makes what is no slot of a variable."""
        return tf.name_scope("async_apply_gradients/")


class SumOverWorkersStrategy(DistributedReplicatedStrategy):
    """Gradients are averaged over the towers of a worker, and summed up over the workers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(average=False, **options)

    def reduce_over_towers(self, objective: Objective, optimizer: Any, towers: Sequence[Tower]) -> Gradients:
        """Return the means of the gradients of this worker's towers, with the variables of the first one."""
        sums = super().reduce_over_towers(objective, optimizer, towers)
        return [(tf.math.scalar_mul(1.0 / len(towers), gradient), variable) for gradient, variable in sums]
