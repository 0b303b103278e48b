"""Memoization, shape arguments, and messages that are logged once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils import logger

__all__ = [
    "graph_memoized",
    "log_once",
    "map_arg",
    "memoized",
    "memoized_ignoreargs",
    "memoized_method",
    "shape2d",
    "shape4d",
]

Function = Callable[..., Any]

memoized: Callable[[Function], Function] = functools.lru_cache(maxsize=None)
"""Decorate a function to cache its results by its (hashable) arguments."""

_of_first_calls: dict[Function, Any] = {}


def map_arg(**maps: Function) -> Callable[[Function], Function]:
    """Return a decorator that applies a function to an argument before the call."""

    def decorate(func: Function) -> Function:
        signature = inspect.signature(func)

        @functools.wraps(func)
        def mapped(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            for name, function in maps.items():
                if name in bound.arguments:
                    bound.arguments[name] = function(bound.arguments[name])
            return func(*bound.args, **bound.kwargs)

        return mapped

    return decorate


def graph_memoized(func: Function) -> Function:
    """Decorate a function to run once per (default) graph and arguments."""

    @memoized
    def in_graph(graph: Any, *args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    @functools.wraps(func)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        return in_graph(tf.compat.v1.get_default_graph(), *args, **kwargs)

    return remembered


def memoized_ignoreargs(func: Function) -> Function:
    """Decorate a function to return the result of its first call, whatever the later arguments."""

    @functools.wraps(func)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        if func not in _of_first_calls:
            _of_first_calls[func] = func(*args, **kwargs)
        return _of_first_calls[func]

    return remembered


def memoized_method(func: Function) -> Function:
    """Decorate a method to run once per object and arguments; the cache has the lifetime of the object."""

    @functools.wraps(func)
    def remembered(self: Any, *args: Any, **kwargs: Any) -> Any:
        results = vars(self).setdefault("_results_of_methods", {})
        key = (func.__qualname__, args, tuple(sorted(kwargs.items())))
        if key not in results:
            results[key] = func(self, *args, **kwargs)
        return results[key]

    return remembered


def call_only_once(func: Function) -> Function:
    """Decorate a method to raise an error when it is called twice on one object."""

    @functools.wraps(func)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        called = vars(self).setdefault("_methods_called_once", set())
        if func.__name__ in called:
            raise RuntimeError(f"{type(self).__name__}.{func.__name__} can be called only once per object")
        called.add(func.__name__)
        return func(self, *args, **kwargs)

    return guarded


def shape2d(a: int | Sequence[int]) -> list[int]:
    """Return ``[a, a]`` for a number, and a list for a pair.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(a, int):
        return [a, a]
    if isinstance(a, (list, tuple)) and len(a) == 2:
        return list(a)
    raise CheckError(f"the shape {a!r} is neither a number nor a pair of numbers")


def shape4d(a: int | Sequence[int], data_format: str = "NHWC") -> list[int]:
    """Return the shape of a kernel or stride, with ones for batch and channels."""
    two = shape2d(a)
    return [1, *two, 1] if get_data_format(data_format, False) == "NHWC" else [1, 1, *two]


def get_data_format(data_format: str, keras_mode: bool = True) -> str:
    """Return an image layout as spelled by Keras (``"channels_last"``) or by TensorFlow's ops (``"NHWC"``).

    Raises:
        ValueError: the layout is unknown.
    """
    for of_ops, of_keras in (("NHWC", "channels_last"), ("NCHW", "channels_first")):
        if data_format in (of_ops, of_keras):
            return of_keras if keras_mode else of_ops
    raise ValueError(f"data_format={data_format!r}: expected one of NHWC, NCHW, channels_last, channels_first")


@memoized
def log_once(message: str, func: str = "info") -> None:
    """Log a message, unless the same function has already logged it.

    Args:
        message: the message.
        func: the name of the `logger` function to log with.
    """
    getattr(logger, func)(message)
