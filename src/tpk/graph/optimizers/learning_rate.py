"""The learning rate of an optimizer in a step, whether it is a number, a tensor or a variable."""

from __future__ import annotations

from numbers import Real
from typing import Any

import tensorflow as tf

from tpk.graph.fetches import ops_run_for
from tpk.graph.optimizers.proxy_optimizer import unwrapped
from tpk.tf_internals import learning_rates_of

_TAKING_DATA = ("Placeholder", "QueueDequeue", "IteratorGetNext", "Unstage")


def learning_rate_of(optimizer: Any) -> Any:
    """Return the learning rate of an optimizer whose gradients are applied already, and which may be wrapped.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`.

    Returns:
        A float if it is constant; a scalar tensor of the default graph that can be fetched alone; or None if the
        optimizer has no learning rate, or an unknown one.
    """
    *_, innermost = unwrapped(optimizer)
    for rate in learning_rates_of(innermost):
        if isinstance(rate, Real):
            return float(rate)
        tensor = _fetchable(rate)
        if tensor is not None:
            return tensor
    return None


def _fetchable(rate: Any) -> Any:
    """Return `rate` as a scalar tensor if it can be fetched alone: outside branches, and independent of data."""
    graph = tf.compat.v1.get_default_graph()
    if not tf.is_tensor(rate) or rate.shape.rank != 0 or getattr(rate, "graph", None) is not graph:
        return None
    tensor = tf.convert_to_tensor(rate)
    takes_data = any(op.type.startswith(_TAKING_DATA) for op in ops_run_for(tensor))
    return tensor if tensor.graph.is_fetchable(tensor) and not takes_data else None
