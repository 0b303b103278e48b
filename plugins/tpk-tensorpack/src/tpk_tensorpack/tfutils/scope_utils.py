"""Variable scopes and name scopes around functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk.graph import auto_reuse_variable_scope, cached_name_scope, under_variable_scope

__all__ = ["auto_reuse_variable_scope", "cached_name_scope", "under_name_scope", "under_variable_scope"]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def under_name_scope(name_scope: str | None = None) -> Decorator:
    """Decorate a function to run each call in a name scope.

    A call can choose another scope with the keyword argument ``name_scope``, which is not passed to the function. Calls
    with the same name share the scope.

    Args:
        name_scope: the name of the scope; by default the name of the function.
    """

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            if "name_scope" in kwargs:
                scope = cached_name_scope(kwargs.pop("name_scope"), top_level=False)
            else:
                scope = tf.name_scope(name_scope or func.__name__)
            with scope:
                return func(*args, **kwargs)

        return call

    return decorate
