"""Scopes: of variables and of names around functions (shared at the second call, or named after it), and of towers."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import tensorflow as tf

from tpk.errors import ConfigError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_Decorator = Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]

current_tower: ContextVar[Any] = ContextVar("tpk_current_tower", default=None)
"""The `TowerContext` of the tower that is being built; None outside of towers."""


def auto_reuse_variable_scope(func: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function that creates variables, so that each further call in the same variable scope shares them.

    The first call in a variable scope of a graph creates them; a later one that would create others is TensorFlow's
    error, as with ``reuse=True``. (``reuse=tf.compat.v1.AUTO_REUSE`` would create them.) In a model with several
    towers, the first call of each has the reuse that the tower has.

    Args:
        func: any function.

    Example:
        ```python
        @tpk.auto_reuse_variable_scope
        def embed(image):
            return tpk.layers.dense(tpk.layers.flatten(image), 64, name="embed")

        distance = tf.norm(embed(left) - embed(right), axis=1)
        ```
    """
    called_in: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    @functools.wraps(func)
    def shared(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        scope = tf.compat.v1.get_variable_scope()
        names = called_in.setdefault(tf.compat.v1.get_default_graph(), set())
        if scope.name not in names:
            names.add(scope.name)
            return func(*args, **kwargs)
        with tf.compat.v1.variable_scope(scope, reuse=True, auxiliary_name_scope=False):
            return func(*args, **kwargs)

    return shared


def under_name_scope(name: str | None = None) -> _Decorator[_Arguments, _Result]:
    """Decorate a function so that each call is in a name scope, which changes no names of variables by `get_variable`.

    Args:
        name: that of the scope; by default that of the function. As always, a second one of the name gets a number.

    Raises:
        ConfigError: if `name` is no name of a scope: write ``@under_name_scope()``, with parentheses.

    Example:
        ```python
        @tpk.under_name_scope()
        def huber_loss(error):
            return tf.where(tf.abs(error) < 1, error**2 / 2, tf.abs(error) - 0.5)  # ops are called huber_loss/…
        ```
    """
    _check_name("under_name_scope", name)

    def decorate(func: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(func)
        def scoped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with tf.name_scope(name or func.__name__):
                return func(*args, **kwargs)

        return scoped

    return decorate


def under_variable_scope(name: str | None = None) -> _Decorator[_Arguments, _Result]:
    """Decorate a function so that each call is in a variable scope, and so in a name scope.

    A second call creates variables of the same names, which is TensorFlow's error unless they are to be shared: see
    `auto_reuse_variable_scope`.

    Args:
        name: that of the scope; by default that of the function.

    Raises:
        ConfigError: if `name` is no name of a scope: write ``@under_variable_scope()``, with parentheses.

    Example:
        ```python
        @tpk.under_variable_scope()
        def generator(noise):
            return tpk.layers.dense(noise, 64)  # its variables are generator/dense/kernel and generator/dense/bias
        ```
    """
    _check_name("under_variable_scope", name)

    def decorate(func: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(func)
        def scoped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with tf.compat.v1.variable_scope(name or func.__name__):
                return func(*args, **kwargs)

        return scoped

    return decorate


def cached_name_scope(name: str, top_level: bool = True) -> AbstractContextManager[Any]:
    """Return a context that is the same name scope each time, where `tf.name_scope` would give it a number.

    So what belongs together, such as the summaries of many layers, is together in a picture of the graph.

    Args:
        name: that of the scope.
        top_level: the scope is none inside of the scope around, such as that of a tower.

    Raises:
        ConfigError: if `name` is no name of a scope.

    Example:
        ```python
        with tpk.cached_name_scope("gradient-norms"):
            norm = tf.norm(gradient)  # gradient-norms/norm, the next one gradient-norms/norm_1
        ```
    """
    _check_name("cached_name_scope", name or "(empty)")
    around = "" if top_level else tf.compat.v1.get_default_graph().get_name_scope()
    # With the slash a scope is entered as it is.
    scope: AbstractContextManager[Any] = tf.name_scope(f"{around}/{name}/" if around else f"{name}/")
    return scope


def _check_name(what: str, name: Any) -> None:
    if callable(name):
        raise ConfigError(f"@{what} is a function that returns a decorator: write @{what}(), with parentheses.")
    if name is not None and (not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*", name)):
        raise ConfigError(f"{what}({name!r}): expected a name of a TensorFlow scope, such as 'losses'.")
