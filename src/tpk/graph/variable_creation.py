"""The variables that a piece of graph construction creates, however it does so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

GraphKeys = tf.compat.v1.GraphKeys


@contextmanager
def record_variables() -> Iterator[list[Any]]:
    """Within the context, each variable that is created is added to the list that the context gives, in order.

    It sees those of `get_variable`, of `tf.Variable`, and the slots of optimizers.
    """
    created: list[Any] = []

    def creator(next_creator: Any, **options: Any) -> Any:
        variable = next_creator(**options)
        created.append(variable)
        return variable

    with tf.variable_creator_scope(creator):
        yield created


def make_local(variables: Sequence[Any]) -> None:
    """Make `variables` local ones: initialized with the others, but not saved, and trained by nobody else."""
    graph = tf.compat.v1.get_default_graph()
    names = {variable.name for variable in variables}
    for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES, GraphKeys.MODEL_VARIABLES):
        collection = graph.get_collection_ref(key)
        collection[:] = [variable for variable in collection if variable.name not in names]
    local = graph.get_collection_ref(GraphKeys.LOCAL_VARIABLES)
    known = {variable.name for variable in local}
    local.extend(variable for variable in variables if variable.name not in known)
