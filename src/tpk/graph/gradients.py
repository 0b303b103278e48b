"""Gradients of a cost, checked before an optimizer takes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError, TowerError
from tpk.graph.scopes import graph_records
from tpk.graph.variables import name_in_tower, variable_name

logger = logging.getLogger(__name__)

_GRADIENTS = "gradients"


def check_cost(cost: Any) -> Any:
    """Return `cost`, the output of a tower function, after checking that it is a scalar floating-point tensor.

    Raises:
        TowerError: if it is something else.
    """
    if not isinstance(cost, tf.Tensor):
        raise TowerError(
            f"the tower function must return the cost, a scalar tensor; it returned {cost!r}. Return the cost alone, "
            "and find other tensors by their names."
        )
    if cost.shape.rank != 0:
        raise TowerError(
            f"the cost {cost.name!r} has shape {cost.shape}; expected a scalar. Reduce it, e.g. by tf.reduce_mean."
        )
    if not cost.dtype.is_floating:
        raise TowerError(f"the cost {cost.name!r} is {cost.dtype.name}; expected a floating-point type. Cast it.")
    return cost


def check_optimizer(optimizer: Any) -> Any:
    """Return `optimizer` after checking that it is a graph-mode optimizer.

    Raises:
        ConfigError: if it is something else, such as a Keras optimizer or a class.
    """
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        kind = type(optimizer)
        raise ConfigError(
            f"the optimizer is {optimizer!r}, a {kind.__module__}.{kind.__name__}; expected a "
            "tf.compat.v1.train.Optimizer, an instance such as tf.compat.v1.train.AdamOptimizer(1e-3)."
        )
    return optimizer


Gradients = list[tuple[Any, Any]]
"""Pairs of a gradient and its variable."""


@attrs.frozen(eq=False)
class RecordedGradient:
    """A gradient of a tower and an objective, as `compute_gradients` computed it, before anything processes it.

    Attributes:
        gradient: the gradient, a tensor; the values of a sparse gradient.
        variable: the name of the variable.
        cost: the cost, a tensor.
        optimizer: the optimizer that minimizes the cost.
    """

    gradient: Any
    variable: str
    cost: Any
    optimizer: Any


def compute_gradients(optimizer: Any, cost: Any, variables: Sequence[Any]) -> Gradients:
    """Return (gradient, variable) for each variable on which `cost` depends.

    Gradients are not gated: each is available as soon as it is computed, instead of when its op has computed all of its
    gradients, which is an optimizer's default. Gates add two or more ops for each op with several inputs; these prevent
    fusion by Grappler, and make the backward pass wait for gradients of weights. The purpose of a gate is that no
    update overtakes an op that still reads the variable. Strategies ensure this for resource variables by running all
    reads first (`tpk.strategies.update_order`). The value of a reference variable cannot be separated from the
    variable, so gradients of reference variables are gated.

    Gradients are not colocated with the ops of the cost, but are on the device of the context, the tower's. Colocation
    through a `tf.cond` without a device puts them on the CPU, whose kernels can misread what a GPU kernel left for them
    (the variance that `FusedBatchNormGradV3` takes is an inverse standard deviation on the GPU).

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`.
        cost: a scalar tensor.
        variables: trainable variables; those without a gradient are left out.

    Raises:
        TowerError: if there are no variables, or no variable has a gradient.
    """
    if not variables:
        raise TowerError(
            f"the tower of the cost {cost.name!r} has no trainable variables. Create variables by "
            "tf.compat.v1.get_variable or tpk.layers."
        )
    kinds = tf.compat.v1.train.Optimizer
    gate = kinds.GATE_NONE if all(hasattr(variable, "handle") for variable in variables) else kinds.GATE_OP
    pairs = optimizer.compute_gradients(cost, var_list=list(variables), gate_gradients=gate)
    found = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    without = ", ".join(variable_name(variable) for gradient, variable in pairs if gradient is None)
    if not found:
        raise TowerError(
            f"the cost {cost.name!r} depends on no trainable variable ({without}). "
            "Look for a tf.stop_gradient, an integer op, or NumPy in between."
        )
    if without:
        logger.debug("%s has no gradient with respect to %s", cost.name, without)
    graph_records(tf.compat.v1.get_default_graph(), _GRADIENTS).extend(
        RecordedGradient(values_of(gradient), variable_name(variable), cost, optimizer) for gradient, variable in found
    )
    return found


def recorded_gradients(graph: Any) -> list[RecordedGradient]:
    """Return all gradients that `compute_gradients` computed in `graph`, for each tower and each objective."""
    return list(graph_records(graph, _GRADIENTS))


def costs_of_first_tower(graph: Any) -> dict[str, tuple[Any, Any]]:
    """Return the costs of the first tower that have gradients, each with the optimizer that minimizes it.

    The keys are the names of the costs inside the tower.
    """
    costs: dict[str, tuple[Any, Any]] = {}
    for record in recorded_gradients(graph):
        costs.setdefault(name_in_tower(record.cost.name), (record.cost, record.optimizer))
    return costs


def gradient_ops_by_cost(graph: Any) -> dict[Any, list[Any]]:
    """Return the ops of the gradients of each cost, by ``cost.ref()``.

    A run that minimizes a cost needs these, but not always the value of the cost itself.
    """
    ops: dict[Any, list[Any]] = {}
    for record in recorded_gradients(graph):
        ops.setdefault(record.cost.ref(), []).append(record.gradient.op)
    return ops


def warn_of_untrained_variables(graph: Any) -> None:
    """Log one warning that names the trainable variables that have no gradient of any cost, if there are any.

    A variable counts as trained if one of several objectives trains it, or if its copy in another tower has a gradient.
    Nothing is logged if `compute_gradients` was never called, e.g. by a trainer that builds its train op differently.
    """
    reached = {name_in_tower(record.variable) for record in recorded_gradients(graph)}
    trainable = map(variable_name, graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES))
    names = [name for name in dict.fromkeys(trainable) if name not in reached]
    if names and reached:
        costs = ", nor of ".join(costs_of_first_tower(graph))
        logger.warning("no gradient of %s, so not trained: %s", costs, ", ".join(names))


def values_of(gradient: Any) -> Any:
    """Return the values of a gradient, which may be sparse, as a tensor."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def map_values(gradient: Any, func: Callable[[Any], Any]) -> Any:
    """Return a gradient, which may be sparse or missing, with `func` applied to its values.

    Args:
        gradient: a tensor, a `tf.IndexedSlices`, or None.
        func: works element by element, and maps 0 to 0.
    """
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(func(gradient.values), gradient.indices, gradient.dense_shape)
    return None if gradient is None else func(gradient)
