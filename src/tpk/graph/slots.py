"""Slots: variables that an optimizer keeps for each variable that it trains."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tpk.graph.variables import variable_name


def create_slot(variable: Any, name: str, initial_value: Callable[[], Any], *, on_cpu: bool = False) -> Any:
    """Create a non-trainable variable that belongs to `variable`.

    It is called ``<variable>/<name>``, with a suffix if there is one already, wherever in the graph it is created: so a
    variable of one tower and its counterpart in another have slots that are named alike, and a checkpoint finds them.

    Args:
        variable: a variable of the default graph.
        name: what to call it.
        initial_value: returns its initial value.
        on_cpu: place it on the CPU, where control flow reads it; by default it is where `variable` is.
    """
    # Out of scopes, control dependencies and branches of control flow: a variable is part of none.
    with tf.init_scope(), tf.name_scope(""), tf.device("/cpu:0") if on_cpu else colocate_with(variable):
        return tf.compat.v1.Variable(
            initial_value,
            trainable=False,
            use_resource=True,
            name=f"{variable_name(variable)}/{name}",
        )


def colocate_with(variable: Any) -> AbstractContextManager[None]:
    """Return a context in which ops are placed where `variable` is, whatever device is chosen around it."""
    context: AbstractContextManager[None] = tf.compat.v1.get_default_graph().colocate_with(variable)
    return context


def sum_dtype(variable: Any) -> Any:
    """Return the type for sums and averages of values of `variable`: its own, but ``float32`` if it has 16 bits.

    Summing many values, or adding a small change to an average, takes more digits than the values have.
    """
    dtype = variable.dtype.base_dtype
    return tf.float32 if dtype.size < 4 else dtype
