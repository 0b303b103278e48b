"""Gradients of a cost, checked before an optimizer takes them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError, TowerError
from tpk.graph.variables import variable_name

logger = logging.getLogger(__name__)


def check_cost(cost: Any) -> Any:
    """Return `cost`, the output of a tower function, after checking that it is a scalar floating-point tensor.

    Raises:
        TowerError: if it is something else.
    """
    if not isinstance(cost, tf.Tensor):
        raise TowerError(
            f"the tower function must return the cost, a scalar tensor; it returned {cost!r}. "
            "Return it from build_graph."
        )
    if cost.shape.rank != 0:
        raise TowerError(
            f"the cost {cost.name!r} has shape {cost.shape}; expected a scalar. Reduce it, e.g. by tf.reduce_mean."
        )
    if not cost.dtype.is_floating:
        raise TowerError(f"the cost {cost.name!r} is {cost.dtype.name}; expected a floating-point type. Cast it.")
    return cost


def check_optimizer(optimizer: Any) -> Any:
    """Return `optimizer` after checking that it is one for graph mode.

    Raises:
        ConfigError: if it is something else, such as a Keras optimizer.
    """
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        raise ConfigError(
            f"the optimizer is {optimizer!r}, a {type(optimizer).__module__}.{type(optimizer).__name__}; expected a "
            "tf.compat.v1.train.Optimizer, such as tf.compat.v1.train.AdamOptimizer(1e-3)."
        )
    return optimizer


Gradients = list[tuple[Any, Any]]
"""Pairs of a gradient and its variable."""


def compute_gradients(optimizer: Any, cost: Any, variables: Sequence[Any], *, warns: bool = True) -> Gradients:
    """Return (gradient, variable) for each variable on which `cost` depends.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`.
        cost: a scalar tensor.
        variables: trainable variables; those without a gradient are left out.
        warns: whether the log names those.

    Raises:
        TowerError: if there is no variable, or none has a gradient.
    """
    if not variables:
        raise TowerError(
            f"there is nothing to train: the tower of the cost {cost.name!r} has no trainable variable. Create "
            "variables by tf.compat.v1.get_variable or tpk.layers."
        )
    pairs = optimizer.compute_gradients(cost, var_list=list(variables))
    without = [variable_name(variable) for gradient, variable in pairs if gradient is None]
    if len(without) == len(pairs):
        raise TowerError(
            f"the cost {cost.name!r} depends on no trainable variable ({', '.join(without)}). "
            "Look for a tf.stop_gradient, an integer op, or NumPy in between."
        )
    if without and warns:
        logger.warning("no gradient of %s, so not trained: %s", cost.name, ", ".join(without))
    return [(gradient, variable) for gradient, variable in pairs if gradient is not None]
