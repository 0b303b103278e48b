"""Argument scopes: default arguments of layers, within a context."""

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

from tpk_tensorpack.tfutils.layer_log import log_shapes

__all__ = ["argscope", "enable_argscope_for_function", "enable_argscope_for_module", "get_arg_scope"]

Arguments = dict[str, dict[str, Any]]

_current: ContextVar[Arguments | None] = ContextVar("tensorpack_argscope", default=None)


@contextmanager
def argscope(layers: Any, **kwargs: Any) -> Iterator[None]:
    """Give layers other default arguments within the context; scopes may be nested.

    Args:
        layers: a layer, or a list of them: what `layer_register` or `enable_argscope_for_function` has decorated.
        kwargs: the arguments.

    Raises:
        ValueError: something else is given, or a layer has no argument of that name.

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
            raise ValueError(
                f"argscope: {layer!r} takes no arguments from a scope; it is no layer of layer_register, and "
                "enable_argscope_for_function was not called with it"
            )
        scope[layer.__name__] = {**scope[layer.__name__], **kwargs}
    token = _current.set(scope)
    try:
        yield
    finally:
        _current.reset(token)


def get_arg_scope() -> Arguments:
    """Return the arguments of the present scope, by the names of the layers; a layer without any has none."""
    return defaultdict(dict, {name: dict(arguments) for name, arguments in (_current.get() or {}).items()})


def with_scope_arguments(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return `kwargs` with what the present scope adds for the layer `name`, and the call does not say itself."""
    present = _current.get()
    added = None if present is None else present.get(name)
    if not added:
        return kwargs
    by_position = list(signature.parameters)[: len(args)]
    return {**{key: value for key, value in added.items() if key not in by_position}, **kwargs}


def enable_argscope_for_function(func: Callable[..., Any], log_shape: bool = True) -> Callable[..., Any]:
    """Return the function as one that takes default arguments from `argscope`.

    Args:
        func: it takes a tensor first, or as an argument ``name`` names its scope.
        log_shape: whether to log the shapes of inputs and outputs.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(func):
        raise TypeError(f"enable_argscope_for_function({func!r}): expected a function")
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
    """Let all functions of a module take default arguments from `argscope`; the module is changed.

    Args:
        module: such as ``tf.layers``.
        log_shape: as for `enable_argscope_for_function`.
    """
    for name, value in list(vars(module).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(module, name, enable_argscope_for_function(value, log_shape))
