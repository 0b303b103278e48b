"""Graph collections: what a piece of graph construction added, and how to take it back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


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
