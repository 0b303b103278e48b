"""Gradients of a cost, checked before an optimizer takes them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError, TowerError
from tpk.graph.variables import name_in_tower, variable_name

logger = logging.getLogger(__name__)


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
    """Return `optimizer` after checking that it is one for graph mode.

    Raises:
        ConfigError: if it is something else, such as a Keras optimizer.
    """
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        kind = optimizer if isinstance(optimizer, type) else type(optimizer)
        remedy = "return tf.compat.v1.train.AdamOptimizer(1e-3)"
        if kind is optimizer and issubclass(optimizer, tf.compat.v1.train.Optimizer):
            remedy = f"return tf.compat.v1.train.{kind.__name__}(learning_rate), an instance"
        raise ConfigError(
            f"the optimizer is {optimizer!r}, a {type(optimizer).__module__}.{type(optimizer).__name__}; expected a "
            f"tf.compat.v1.train.Optimizer. Write, for example, {remedy}."
        )
    return optimizer


Gradients = list[tuple[Any, Any]]
"""Pairs of a gradient and its variable."""

# Collections whose items stand side by side: unlike what holds all three, they can be written to a meta graph.
_RECORDS = ("TPK_GRADIENTS", "TPK_GRADIENT_VARIABLES", "TPK_GRADIENT_COSTS")

# A key that is no string keeps a collection out of meta graphs, which optimizers cannot be written to.
_OPTIMIZERS = ("__tpk_optimizers",)


@attrs.frozen(eq=False)
class RecordedGradient:
    """A gradient that was computed: that of a tower and an objective, before anything is done to it.

    Attributes:
        gradient: the gradient, a tensor; of a sparse one its values.
        variable: the name of the variable.
        cost: the cost, a tensor.
    """

    gradient: Any
    variable: str
    cost: Any


def compute_gradients(optimizer: Any, cost: Any, variables: Sequence[Any]) -> Gradients:
    """Return (gradient, variable) for each variable on which `cost` depends.

    Gradients are not gated: each is there as soon as it is computed, and not only once its op has computed all of its
    own, as is an optimizer's default. That would add to the graph two ops or more for each op that has several inputs,
    which stand between what Grappler would fuse, and let the backward pass wait for gradients of weights. What a gate
    is for, that no update overtakes what still reads the variable, is left to strategies, which let all reads come
    first (`tpk.strategies.update_order`): of resource variables, a read takes the value as it is then. With reference
    variables, whose values cannot be taken apart from them, gradients are gated.

    Nor are they colocated with the ops of the cost: they are on the device of the context, the tower's. Through a
    `tf.cond` without a device, colocation puts them on the CPU, where kernels may take what a GPU's kernel has left for
    something else (the variance that `FusedBatchNormGradV3` takes is an inverse standard deviation there).

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`.
        cost: a scalar tensor.
        variables: trainable variables; those without a gradient are left out.

    Raises:
        TowerError: if there is no variable, or none has a gradient.
    """
    if not variables:
        raise TowerError(
            f"there is nothing to train: the tower of the cost {cost.name!r} has no trainable variable. Create "
            "variables by tf.compat.v1.get_variable or tpk.layers."
        )
    kinds = tf.compat.v1.train.Optimizer
    gate = kinds.GATE_NONE if all(hasattr(variable, "handle") for variable in variables) else kinds.GATE_OP
    pairs = optimizer.compute_gradients(cost, var_list=list(variables), gate_gradients=gate)
    without = [variable_name(variable) for gradient, variable in pairs if gradient is None]
    if len(without) == len(pairs):
        raise TowerError(
            f"the cost {cost.name!r} depends on no trainable variable ({', '.join(without)}). "
            "Look for a tf.stop_gradient, an integer op, or NumPy in between."
        )
    if without:
        logger.debug("%s has no gradient of %s", cost.name, ", ".join(without))
    found = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    _record(cost, found)
    tf.compat.v1.add_to_collection(_OPTIMIZERS, (cost, optimizer))
    return found


def recorded_gradients(graph: Any) -> list[RecordedGradient]:
    """Return all gradients that were computed in `graph` by `compute_gradients`: of each tower and each objective."""
    return [RecordedGradient(*items) for items in zip(*map(graph.get_collection, _RECORDS), strict=True)]


def gradient_ops_by_cost(graph: Any) -> dict[Any, list[Any]]:
    """Return the ops of the gradients of each cost, by ``cost.ref()``.

    A run that minimizes a cost needs these, but not always the value of the cost itself.
    """
    ops: dict[Any, list[Any]] = {}
    for record in recorded_gradients(graph):
        ops.setdefault(record.cost.ref(), []).append(record.gradient.op)
    return ops


def recorded_costs(graph: Any) -> dict[str, Any]:
    """Return the costs of which there are gradients, of the first tower, by the names that they have in a tower."""
    costs: dict[str, Any] = {}
    for record in recorded_gradients(graph):
        costs.setdefault(name_in_tower(record.cost.name), record.cost)
    return costs


def recorded_optimizers(graph: Any) -> list[tuple[Any, Any]]:
    """Return each cost of the first tower of which there are gradients, and the optimizer that minimizes it there."""
    found: dict[str, tuple[Any, Any]] = {}
    for cost, optimizer in graph.get_collection(_OPTIMIZERS):
        found.setdefault(name_in_tower(cost.name), (cost, optimizer))
    return list(found.values())


def untrained_variables(graph: Any) -> list[str]:
    """Return the names of the trainable variables that no gradient of any cost reaches.

    A variable that one of several objectives trains is trained, and so is one whose copy in a tower has a gradient.
    Where no gradient was computed by `compute_gradients`, as by a trainer that builds its train op by other means,
    nothing can be told, and none is named.
    """
    reached = {name_in_tower(record.variable) for record in recorded_gradients(graph)}
    trainable = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    return [name for name in dict.fromkeys(map(variable_name, trainable)) if name not in reached] if reached else []


def warn_of_untrained_variables(graph: Any) -> None:
    """Log one warning that names all `untrained_variables`, if there are any."""
    names = untrained_variables(graph)
    if names:
        costs = ", nor of ".join(recorded_costs(graph))
        logger.warning("no gradient of %s, so not trained: %s", costs, ", ".join(names))


def values_of(gradient: Any) -> Any:
    """Return the tensor with the numbers of a dense or sparse gradient."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _record(cost: Any, pairs: Gradients) -> None:
    graph = tf.compat.v1.get_default_graph()
    for gradient, variable in pairs:
        for key, item in zip(_RECORDS, (values_of(gradient), variable_name(variable), cost), strict=True):
            graph.add_to_collection(key, item)
