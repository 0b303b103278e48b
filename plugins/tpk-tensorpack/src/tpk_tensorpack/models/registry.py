"""Registration of layers: a variable scope, an argument scope, and a log of shapes around a function."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk_tensorpack.tfutils.argscope import with_scope_arguments
from tpk_tensorpack.tfutils.layer_log import disable_layer_logging, log_shapes

__all__ = ["disable_layer_logging", "layer_register"]

Layer = Callable[..., Any]

_registered: dict[str, Layer] = {}


def get_registered_layer(name: str) -> Layer | None:
    """Return the layer that was registered under a name, or None."""
    return _registered.get(name)


def layer_register(log_shape: bool = False, use_scope: bool | None = True) -> Callable[[Layer], Layer]:
    """Return a decorator that makes a layer of a function; its variables are those of `tf.get_variable`.

    A layer takes default arguments from `argscope`, and is known to `LinearWrap` by its name.

    Args:
        log_shape: whether to log the shapes of inputs and outputs.
        use_scope: whether the layer is called with the name of its variable scope first. None takes a name if the
            first argument is a text.

    Raises:
        ValueError: (by the layer) the name is missing, or is no text; or there is a layer of that name already.

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
                    # Outside of the tower's own scope, if it has one.
                    log_shapes(re.sub(r"^tower\d+/", "", scope.name), func.__name__, args[0], outputs)
            return outputs

        layer.f = func  # type: ignore[attr-defined]
        layer.use_scope = use_scope  # type: ignore[attr-defined]
        layer.__argscope_enabled__ = True  # type: ignore[attr-defined]
        if func.__name__ in _registered:
            raise ValueError(f"a layer called {func.__name__} is registered already; give this one another name")
        _registered[func.__name__] = layer
        return layer

    return register


def _taken_name(func: Layer, use_scope: bool | None, args: tuple[Any, ...]) -> tuple[str | None, tuple[Any, ...]]:
    """Return the name of the scope, if the layer is called with one, and the other arguments."""
    has_name = bool(args) and isinstance(args[0], str)
    if use_scope and not has_name:
        raise ValueError(
            f"{func.__name__} wants the name of its scope first, as in {func.__name__}('name', x, …); "
            f"got {args[0] if args else 'nothing'!r}"
        )
    if use_scope is False and has_name:
        raise ValueError(f"{func.__name__} has no scope of its own: leave out the name {args[0]!r}")
    return (args[0], args[1:]) if has_name else (None, args)
