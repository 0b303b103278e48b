"""Scopes of variables and of names around functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tpk.graph
from tpk.graph import auto_reuse_variable_scope, cached_name_scope

__all__ = ["auto_reuse_variable_scope", "cached_name_scope", "under_name_scope", "under_variable_scope"]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def under_name_scope(name_scope: str | None = None) -> Decorator:
    """Decorate a function so that each call is in a name scope.

    Args:
        name_scope: that of the scope; by default that of the function.
    """
    return tpk.graph.under_name_scope(name_scope)


def under_variable_scope() -> Decorator:
    """Decorate a function so that each call is in a variable scope that is called as the function is."""
    return tpk.graph.under_variable_scope()
