"""Back up, restore, freeze and watch the collections of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpk.graph import backup_collection, freeze_collection, restore_collection
from tpk.graph.scopes import added_since, collection_sizes, truncate
from tpk_tensorpack.utils import logger

__all__ = ["backup_collection", "freeze_collection", "restore_collection"]

_Keys = tf.compat.v1.GraphKeys

EXPECTED_TO_CHANGE = (
    _Keys.TRAINABLE_VARIABLES,
    _Keys.GLOBAL_VARIABLES,
    _Keys.LOCAL_VARIABLES,
    _Keys.MODEL_VARIABLES,
    _Keys.QUEUE_RUNNERS,
    _Keys.WHILE_CONTEXT,
    _Keys.COND_CONTEXT,
)
"""Collections whose additions a guard does not log."""


class CollectionGuard:
    """A context that watches additions to collections of the default graph, and logs them on exit.

    Args:
        name: the name in the log.
        check_diff: whether to log the collections that have changed.
        freeze_keys: the names of collections to restore on exit.
        diff_whitelist: the names of collections to leave out of the log; by default variables and control
            flow.

    Attributes:
        original: the original contents of the collections.

    Example:
        ```python
        with CollectionGuard("tower0", check_diff=False, freeze_keys=[tf.GraphKeys.SUMMARIES]) as guard:
            build()
        guard.get_collection_in_tower(tf.GraphKeys.UPDATE_OPS)
        ```
    """

    original: dict[str, tuple[Any, ...]] | None = None

    def __init__(
        self,
        name: str,
        check_diff: bool,
        freeze_keys: Iterable[str] = (),
        diff_whitelist: Iterable[str] | None = None,
    ) -> None:
        self._name = name
        self._check_diff = check_diff
        self._freeze_keys = list(freeze_keys)
        self._whitelist = set(EXPECTED_TO_CHANGE if diff_whitelist is None else diff_whitelist)
        self._sizes: dict[str, int] = {}
        self._added: dict[str, list[Any]] | None = None

    def __enter__(self) -> CollectionGuard:
        self.original = backup_collection()
        self._sizes = collection_sizes()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._added = added_since(self._sizes)
        if exception[0] is not None:
            return
        changed = sorted(key for key in self._added if key not in self._whitelist and key not in self._freeze_keys)
        if self._check_diff and changed:
            sizes = ", ".join(f"{key}: {self._sizes.get(key, 0)} + {len(self._added[key])}" for key in changed)
            logger.info("%s has added to collections: %s", self._name or "what was built", sizes)
        truncate(self._freeze_keys, self._sizes)

    def get_collection_in_tower(self, key: str) -> list[Any]:
        """Return the items added to a collection within the context, so far or until its exit."""
        return list((added_since(self._sizes) if self._added is None else self._added).get(key, []))
