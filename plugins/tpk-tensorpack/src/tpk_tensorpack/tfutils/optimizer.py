"""Optimizers around an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tpk.graph
from tpk.graph import MapGradient, PostProcessOptimizer, ProxyOptimizer, VariableAssignmentOptimizer

__all__ = [
    "AccumGradOptimizer",
    "PostProcessOptimizer",
    "ProxyOptimizer",
    "VariableAssignmentOptimizer",
    "apply_grad_processors",
]


def apply_grad_processors(opt: Any, gradprocs: Sequence[Any]) -> Any:
    """Return an optimizer that processes gradients before `opt` takes them.

    Args:
        opt: a `tf.train.Optimizer`.
        gradprocs: processors, applied in this order.
    """
    return tpk.graph.apply_grad_processors(opt, gradprocs)


class AccumGradOptimizer(tpk.graph.AccumGradOptimizer):
    """Accumulates gradients, and applies their *sum* in every `niter`-th step; `tpk.AccumGradOptimizer` their mean.

    Args:
        opt: the optimizer that updates.
        niter: of how many steps the gradients are accumulated.

    Raises:
        ConfigError: `opt` is no `tf.train.Optimizer`, or `niter` is no positive whole number.
    """

    def __init__(self, opt: Any, niter: int) -> None:
        super().__init__(opt, niter)
        if self.niter > 1:
            # What it wraps gets a mean.
            self._opt = tpk.graph.apply_grad_processors(opt, [MapGradient(lambda mean: mean * self.niter)])
