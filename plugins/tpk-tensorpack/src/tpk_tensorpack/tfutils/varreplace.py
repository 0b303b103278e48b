"""Replace variables in a part of the graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tpk.graph
from tpk.graph import custom_getter_scope, freeze_variables

__all__ = ["custom_getter_scope", "freeze_variables", "remap_variables"]


def remap_variables(fn: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Return a context in which `fn` replaces each variable that is created or reused.

    Args:
        fn: takes a variable and returns its replacement.

    Example:
        ```python
        with remap_variables(lambda v: quantize(v) if v.op.name.endswith("/W") else v):
            logits = network(image)
        ```
    """
    return tpk.graph.remap_variables(fn)
