"""Optimizers that wrap another optimizer."""

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
    """Return an optimizer that processes gradients before they are passed to `opt`.

    Args:
        opt: a `tf.train.Optimizer`.
        gradprocs: processors, applied in this order.
    """
    return tpk.graph.apply_grad_processors(opt, gradprocs)


class AccumGradOptimizer(tpk.graph.AccumGradOptimizer):
    """Apply the *sum* of the gradients of every `niter` steps, where `tpk.AccumGradOptimizer` applies their mean.

    Args:
        opt: the optimizer that applies gradients.
        niter: the number of steps to accumulate gradients over.

    Raises:
        ConfigError: `opt` is not a `tf.train.Optimizer`, or `niter` is not a positive integer.
    """

    def __init__(self, opt: Any, niter: int) -> None:
        super().__init__(opt, niter)
        if self.niter > 1:
            # The wrapped optimizer gets the mean.
            self._opt = tpk.graph.apply_grad_processors(opt, [MapGradient(lambda mean: mean * self.niter)])
