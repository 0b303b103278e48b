"""`tf.contrib.framework`: checkpoints, variables, the global step and argument scopes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as _tf

from tpk_tensorflow1 import internals as nest
from tpk_tensorflow1.missing import finder_in, own_names

v1 = _tf.compat.v1

argsort = _tf.argsort
sort = _tf.sort
is_tensor = _tf.is_tensor
list_variables = _tf.train.list_variables
load_variable = _tf.train.load_variable
load_checkpoint = _tf.train.load_checkpoint
init_from_checkpoint = v1.train.init_from_checkpoint
get_global_step = v1.train.get_global_step
get_or_create_global_step = v1.train.get_or_create_global_step
create_global_step = v1.train.create_global_step

Function = Callable[..., Any]

_scopes: list[dict[str, dict[str, Any]]] = [{}]


def add_arg_scope(func: Function) -> Function:
    """Decorate a function so that `arg_scope` can set its default arguments."""
    key = f"{func.__module__}.{func.__qualname__}"

    @functools.wraps(func)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **{**_scopes[-1].get(key, {}), **kwargs})

    scoped._arg_scope_key = key  # type: ignore[attr-defined]
    return scoped


@contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[dict[str, dict[str, Any]]]:
    """Return a context that sets default arguments of functions.

    Args:
        list_ops_or_scope: functions decorated with `add_arg_scope`; or the scope that another `arg_scope` returned.
        kwargs: the default arguments.

    Raises:
        ValueError: a function is not decorated, or arguments are given together with a scope.

    Example:
        ```python
        with arg_scope([conv2d, fully_connected], weights_regularizer=l2_regularizer(1e-4)):
            x = conv2d(x, 32, 3)
        ```
    """
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ValueError("arg_scope: arguments cannot be combined with a scope, which has its own")
        scope = list_ops_or_scope
    else:
        scope = {key: dict(value) for key, value in _scopes[-1].items()}
        for func in list_ops_or_scope:
            key = arg_scope_func_key(func)
            if not has_arg_scope(func):
                raise ValueError(f"arg_scope: {func!r} has no argument scope: decorate it with @add_arg_scope")
            scope[key] = {**scope.get(key, {}), **kwargs}
    _scopes.append(scope)
    try:
        yield scope
    finally:
        _scopes.pop()


def current_arg_scope() -> dict[str, dict[str, Any]]:
    """Return the innermost scope of `arg_scope`."""
    return _scopes[-1]


def arg_scope_func_key(op: Function) -> str:
    """Return the key of a function in a scope of `arg_scope`."""
    return getattr(op, "_arg_scope_key", str(op))


def has_arg_scope(func: Function) -> bool:
    """Whether a function is decorated with `add_arg_scope`."""
    return hasattr(func, "_arg_scope_key")


def get_name_scope() -> str:
    """Return the name scope of the default graph."""
    return str(v1.get_default_graph().get_name_scope())


def variable(name: str, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Return an existing variable or create a new one on a device; see `tf.get_variable`."""
    with _tf.device(device or ""):
        return v1.get_variable(name, *args, **kwargs)


def model_variable(name: str, *args: Any, collections: Any = None, **kwargs: Any) -> Any:
    """Do the same as `variable`, and add a new variable to ``MODEL_VARIABLES``, too."""
    keys = [*(collections or ()), v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.MODEL_VARIABLES]
    return variable(name, *args, collections=keys, **kwargs)


def local_variable(initial_value: Any, validate_shape: bool = True, name: str | None = None) -> Any:
    """Return a new variable in the collection ``LOCAL_VARIABLES``, which is neither trained nor saved."""
    local = {"trainable": False, "collections": [v1.GraphKeys.LOCAL_VARIABLES]}
    return v1.Variable(initial_value, validate_shape=validate_shape, name=name, **local)


__all__ = ["nest", *own_names(__name__)]

__getattr__ = finder_in("tf.contrib.framework", __all__)
