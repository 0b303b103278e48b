"""Register layers: functions with a variable scope, an argument scope and a log of shapes."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.tfutils.argscope import with_scope_arguments
from tpk_tensorpack.tfutils.model_utils import disable_layer_logging, log_shapes

__all__ = ["disable_layer_logging", "layer_register"]

Layer = Callable[..., Any]

_registered: dict[str, Layer] = {}


def get_registered_layer(name: str) -> Layer | None:
    """Return the layer registered under a name, or None."""
    return _registered.get(name)


def layer_register(log_shape: bool = False, use_scope: bool | None = True) -> Callable[[Layer], Layer]:
    """Return a decorator that makes a function a layer; it creates variables with `tf.get_variable`.

    A layer takes default arguments from `argscope`, and is a method of `LinearWrap` by its name.

    Args:
        log_shape: whether to log the shapes of inputs and outputs.
        use_scope: whether the first argument of the layer is the name of its variable scope. None makes the name
            optional: a string as the first argument is the name.

    Raises:
        ValueError: (when calling the layer) the name is missing or not a string; or the layer is already registered.

    Example:
        ```python
        @layer_register(log_shape=True)
        def Scale(x, init=1.0):
            return x * tf.get_variable("scale", [], initializer=tf.constant_initializer(init))


        y = Scale("scale0", x)
        ```
    """

    def register(func: Layer) -> Layer:
        signature = inspect.signature(func)

        @functools.wraps(func)
        def layer(*args: Any, **kwargs: Any) -> Any:
            name, args = _taken_name(func, use_scope, args)
            kwargs = with_scope_arguments(func.__name__, signature, args, kwargs)
            if name is None:
                return func(*args, **kwargs)
            with tf.compat.v1.variable_scope(name) as scope:
                outputs = func(*args, **kwargs)
                if log_shape and args:
                    # Outside of the tower's own scope, if any.
                    log_shapes(re.sub(r"^tower\d+/", "", scope.name), func.__name__, args[0], outputs)
            return outputs

        layer.f = func  # type: ignore[attr-defined]
        layer.use_scope = use_scope  # type: ignore[attr-defined]
        layer.__argscope_enabled__ = True  # type: ignore[attr-defined]
        if func.__name__ in _registered:
            raise ValueError(f"a layer called {func.__name__} is already registered; choose another name")
        _registered[func.__name__] = layer
        return layer

    return register


def _taken_name(func: Layer, use_scope: bool | None, args: tuple[Any, ...]) -> tuple[str | None, tuple[Any, ...]]:
    """Return the name of the scope, if given, and the remaining arguments."""
    has_name = bool(args) and isinstance(args[0], str)
    if use_scope and not has_name:
        raise CheckError(
            f"{func.__name__} takes the name of its scope first, as in {func.__name__}('name', x, …); "
            f"got {args[0] if args else 'nothing'!r}"
        )
    if use_scope is False and has_name:
        raise ValueError(f"{func.__name__} does not have a scope: leave out the name {args[0]!r}")
    return (args[0], args[1:]) if has_name else (None, args)
