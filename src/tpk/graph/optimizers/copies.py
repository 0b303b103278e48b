"""Copies of optimizers, for the other replicates of a model: hyperparameters are shared, slots are not."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.graph.optimizers.proxy import ProxyOptimizer


def copies_of_optimizers(optimizers: Sequence[Any]) -> list[Any]:
    """Return a copy of each optimizer, for another replicate of the model.

    A copy has slots of its own. It shares tensors and variables that the optimizer was made with, such as a learning
    rate. An optimizer inside of another one is copied, too; one that occurs several times, once.

    Args:
        optimizers: `tf.compat.v1.train.Optimizer`s that have not applied gradients yet.
    """
    copies: dict[int, Any] = {}
    return [_copied(optimizer, copies) for optimizer in optimizers]


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """The copy of an optimizer, or of a container with what is in it; all else is shared.

    Args:
        value: what an attribute of an optimizer is.
        copies: the copies made so far, by the `id` of what they are of.
    """
    kind = type(value)
    if isinstance(value, tf.compat.v1.train.Optimizer):
        if id(value) not in copies:
            copies[id(value)] = other = copy.copy(value)
            vars(other).update({name: _copied(each, copies) for name, each in vars(value).items()})
            if isinstance(other, ProxyOptimizer):
                other.leave_shared_variables()
        return copies[id(value)]
    if kind in (list, tuple, set):
        return kind(_copied(each, copies) for each in value)
    if kind is dict:
        return {key: _copied(each, copies) for key, each in value.items()}
    return copy.copy(value) if isinstance(value, dict) else value
