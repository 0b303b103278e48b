"""Other variables than those that a piece of graph asks for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tpk.graph
from tpk.graph import custom_getter_scope, freeze_variables

__all__ = ["custom_getter_scope", "freeze_variables", "remap_variables"]


def remap_variables(fn: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Return a context within which a piece of graph gets, for each variable, what `fn` makes of it.

    Args:
        fn: takes a variable, and returns what is to be used in its place.

    Example:
        ```python
        with remap_variables(lambda v: quantize(v) if v.op.name.endswith("/W") else v):
            logits = network(image)
        ```
    """
    return tpk.graph.remap_variables(fn)
