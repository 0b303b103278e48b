"""Argument scopes: default arguments of layers within a context."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import tensorflow as tf

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.tfutils.model_utils import log_shapes

__all__ = ["argscope", "enable_argscope_for_function", "enable_argscope_for_module", "get_arg_scope"]

Arguments = dict[str, dict[str, Any]]

_current: ContextVar[Arguments | None] = ContextVar("tensorpack_argscope", default=None)


@contextmanager
def argscope(layers: Any, **kwargs: Any) -> Iterator[None]:
    """Change the default arguments of layers within the context; scopes may be nested.

    Args:
        layers: a layer, or a list of them, decorated by `layer_register` or `enable_argscope_for_function`.
        kwargs: the arguments.

    Raises:
        ValueError: `layers` contains something else, or a layer has no such argument.

    Example:
        ```python
        with argscope([Conv2D, FullyConnected], activation=tf.nn.relu), argscope(Conv2D, kernel_size=3):
            x = Conv2D("conv0", x, 32)
        ```
    """
    layers = layers if isinstance(layers, (list, tuple)) else [layers]
    scope = get_arg_scope()
    for layer in layers:
        if not getattr(layer, "__argscope_enabled__", False):
            raise CheckError(
                f"argscope: {layer!r} does not take arguments from a scope: decorate it with layer_register or "
                "enable_argscope_for_function first"
            )
        scope[layer.__name__] = {**scope[layer.__name__], **kwargs}
    token = _current.set(scope)
    try:
        yield
    finally:
        _current.reset(token)


def get_arg_scope() -> Arguments:
    """Return the arguments of the current scope by layer name, empty by default."""
    return defaultdict(dict, {name: dict(arguments) for name, arguments in (_current.get() or {}).items()})


def with_scope_arguments(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return `kwargs` with the arguments of the current scope for the layer `name` that the call does not give."""
    added = (_current.get() or {}).get(name, {})
    by_position = list(signature.parameters)[: len(args)]
    return {**{key: value for key, value in added.items() if key not in by_position}, **kwargs}


def enable_argscope_for_function(func: Callable[..., Any], log_shape: bool = True) -> Callable[..., Any]:
    """Return a function that takes default arguments from `argscope`.

    Args:
        func: a function whose first argument is a tensor or which has an argument ``name`` for its scope.
        log_shape: whether to log the shapes of inputs and outputs.

    Raises:
        TypeError: `func` is not callable.
    """
    if not callable(func):
        raise CheckError(f"enable_argscope_for_function({func!r}): expected a function")
    signature = inspect.signature(func)

    @functools.wraps(func)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        arguments = with_scope_arguments(func.__name__, signature, args, kwargs)
        outputs = func(*args, **arguments)
        if log_shape and args:
            name = arguments.get("name") or tf.compat.v1.get_variable_scope().name
            log_shapes(name or func.__name__, func.__name__, args[0], outputs)
        return outputs

    scoped.__argscope_enabled__ = True  # type: ignore[attr-defined]
    return scoped


def enable_argscope_for_module(module: ModuleType, log_shape: bool = True) -> None:
    """Make all functions of a module take default arguments from `argscope`; the module is modified.

    Args:
        module: a module such as ``tf.layers``.
        log_shape: as for `enable_argscope_for_function`.
    """
    for name, value in list(vars(module).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(module, name, enable_argscope_for_function(value, log_shape))
