"""Graph collections: what a piece of graph construction added, how to take it back, and where nothing can be added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.tf_internals import control_flow_context

_BRANCHES = {
    "CondBranchFuncGraph": "a tf.cond",
    "WhileCondFuncGraph": "a tf.while_loop",
    "WhileBodyFuncGraph": "a tf.while_loop",
}


def collection_sizes() -> dict[str, int]:
    """Return how many items each collection of the default graph holds."""
    graph = tf.compat.v1.get_default_graph()
    return {key: len(graph.get_collection_ref(key)) for key in graph.get_all_collection_keys()}


def added_since(sizes: dict[str, int]) -> dict[str, list[Any]]:
    """Return what each collection of the default graph gained since `collection_sizes` returned `sizes`."""
    graph = tf.compat.v1.get_default_graph()
    gained = {key: graph.get_collection(key)[sizes.get(key, 0) :] for key in graph.get_all_collection_keys()}
    return {key: items for key, items in gained.items() if items}


def truncate(keys: Iterable[str], sizes: dict[str, int]) -> None:
    """Take from the collections `keys` of the default graph what they gained since they had these `sizes`."""
    graph = tf.compat.v1.get_default_graph()
    for key in keys:
        del graph.get_collection_ref(key)[sizes.get(key, 0) :]


@contextmanager
def freeze_collection(keys: Iterable[str]) -> Iterator[None]:
    """Within the context, additions to the collections `keys` of the default graph do not last.

    Args:
        keys: names of collections, e.g. ``[tf.compat.v1.GraphKeys.UPDATE_OPS]``.

    Example:
        ```python
        with freeze_collection([tf.compat.v1.GraphKeys.SUMMARIES]):
            build_validation_graph()
        ```
    """
    kept = list(keys)
    sizes = collection_sizes()
    try:
        yield
    finally:
        truncate(kept, sizes)


def backup_collection(keys: Iterable[str] | None = None) -> dict[str, tuple[Any, ...]]:
    """Return what collections of the default graph hold now, for `restore_collection`.

    Args:
        keys: names of collections; by default all that there are.

    Raises:
        ConfigError: if `keys` is one name, and no list.

    Example:
        ```python
        kept = backup_collection([tf.compat.v1.GraphKeys.LOSSES])
        build_auxiliary_graph()
        restore_collection(kept)
        ```
    """
    if isinstance(keys, str):
        raise ConfigError(f"backup_collection takes a list of names, got {keys!r}. Write [{keys!r}].")
    graph = tf.compat.v1.get_default_graph()
    kept = graph.get_all_collection_keys() if keys is None else keys
    return {key: tuple(graph.get_collection(key)) for key in kept}


def restore_collection(backup: Mapping[str, Sequence[Any]]) -> None:
    """Let collections of the default graph hold what they held at the time of a `backup_collection`, and nothing else.

    Collections that are not in the backup stay as they are.

    Args:
        backup: what `backup_collection` returned.

    Raises:
        ConfigError: if it is something else.
    """
    if not isinstance(backup, Mapping):
        raise ConfigError(f"restore_collection takes what backup_collection returned, got {backup!r}.")
    graph = tf.compat.v1.get_default_graph()
    for key, items in backup.items():
        graph.get_collection_ref(key)[:] = items


def check_can_be_collected(what: str, remedy: str) -> None:
    """Check that what is made in the default graph can be taken out of it by a collection.

    What is made inside of a `tf.cond`, a `tf.while_loop` (so `tf.map_fn`) or a `tf.function` is no part of the graph
    around. Who takes it from a collection, takes it for one, and fails much later, or never finds it there.

    Args:
        what: what is to be collected, and who collects it: the beginning of the message.
        remedy: the end of the message.

    Raises:
        ConfigError: if it cannot.

    Example:
        ```python
        check_can_be_collected("my_layer 'norm': the update of its average", "Build the layer outside.")
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
        ```
    """
    around = control_flow_around()
    if around is not None:
        raise ConfigError(
            f"{what} is made inside of {around}, and does not exist outside, where a collection would take it. {remedy}"
        )


def control_flow_around() -> str | None:
    """Return what hides what is made now from the graph around, such as ``"a tf.cond"``; None if nothing does.

    A function that is called eagerly has no graph around: its collections are its own.
    """
    graph = tf.compat.v1.get_default_graph()
    context = control_flow_context(graph)
    while context is not None:
        if context.IsCondContext() or context.IsWhileContext():
            return "a tf.cond" if context.IsCondContext() else "a tf.while_loop"
        context = context.outer_context
    branch = _BRANCHES.get(type(graph).__name__)
    if branch is not None or not graph.building_function:
        return branch
    with tf.init_scope():
        return None if tf.executing_eagerly() else f"the function {graph.name!r}"
