"""Scopes of variables and of names around functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tpk.graph
from tpk.graph import auto_reuse_variable_scope, cached_name_scope

__all__ = ["auto_reuse_variable_scope", "cached_name_scope", "under_name_scope", "under_variable_scope"]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def under_name_scope(name_scope: str | None = None) -> Decorator:
    """Decorate a function so that each call is in a name scope.

    A call can choose another scope with the keyword argument ``name_scope``, which the function does not get. Calls
    with the same name share that scope.

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


def under_variable_scope() -> Decorator:
    """Decorate a function so that each call is in a variable scope that is called as the function is."""
    return tpk.graph.under_variable_scope()
