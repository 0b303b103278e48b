"""What layers have in common: their variables as attributes of what they return, and names of the past."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tpk_tensorpack.models.registry import disable_layer_logging, layer_register

__all__ = ["VariableHolder", "disable_layer_logging", "layer_register", "rename_tflayer_get_variable"]

Layer = Callable[..., Any]

_OLD_NAMES = {"W_init": "kernel_initializer", "b_init": "bias_initializer", "nl": "activation"}


class VariableHolder:
    """Variables, each an attribute: what a layer returns has them in ``variables``, as ``conv.variables.W``.

    Args:
        kwargs: the variables.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._vars: dict[str, Any] = {}
        for name, variable in kwargs.items():
            self._add_variable(name, variable)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self._add_variable(name, value)
        else:
            object.__setattr__(self, name, value)

    def _add_variable(self, name: str, variable: Any) -> None:
        if name in self._vars:
            raise AttributeError(f"there is a variable {name!r} already")
        self._vars[name] = variable
        object.__setattr__(self, name, variable)

    def all(self) -> list[Any]:
        """Return all of them."""
        return list(self._vars.values())


def with_variables(outputs: Any, **variables: Any) -> Any:
    """Return `outputs`, which have these variables (but for None) as their ``variables``."""
    outputs.variables = VariableHolder(**{name: each for name, each in variables.items() if each is not None})
    return outputs


def old_arguments(positional: Sequence[str], renamed: Mapping[str, str]) -> Callable[[Layer], Layer]:
    """Return a decorator that takes arguments of the past: by other names, and by position after the inputs.

    Args:
        positional: which arguments may follow the inputs by position.
        renamed: further old names, and what they are called now.
    """
    names = {**_OLD_NAMES, **renamed}

    def decorate(func: Layer) -> Layer:
        @functools.wraps(func)
        def layer(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > len(positional):
                raise ValueError(
                    f"{func.__name__} takes {', '.join(positional)} by position after the inputs; "
                    f"pass the other {len(args) - len(positional)} by name"
                )
            arguments = dict(zip(positional, args, strict=False))
            for name, value in kwargs.items():
                now = names.get(name, name)
                if now in arguments:
                    raise TypeError(
                        f"{func.__name__} got {now!r} twice" + (f", once as {name!r}" if now != name else "")
                    )
                arguments[now] = value
            return func(inputs, **arguments)

        return layer

    return decorate


def rename_get_variable(mapping: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Return a context in which `tf.get_variable` calls the variables of the present scope by other names.

    Args:
        mapping: the names, and what to call them.
    """
    prefix = tf.compat.v1.get_variable_scope().name

    def getter(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        scope, _, last = name.rpartition("/")
        if scope == prefix and last in mapping:
            name = f"{scope}/{mapping[last]}" if scope else mapping[last]
        return getter(name, *args, **kwargs)

    return _custom_getter(getter)


def rename_tflayer_get_variable() -> AbstractContextManager[Any]:
    """Return a context in which the variables of a layer of `tf.layers` are called as tensorpack's layers call them.

    That is ``W`` and ``b`` for its kernel and bias, ``mean/EMA`` and ``variance/EMA`` for the moving averages.

    Example:
        ```python
        with tf.variable_scope("first"), rename_tflayer_get_variable():
            x = tf.layers.conv2d(x, 32, 3, name=tf.get_variable_scope())  # first/W, first/b
        ```
    """
    names = {
        "kernel": "W",
        "bias": "b",
        "moving_mean": "mean/EMA",
        "moving_variance": "variance/EMA",
    }

    def getter(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        scope, _, last = name.rpartition("/")
        last = names.get(last, last)
        return getter(f"{scope}/{last}" if scope else last, *args, **kwargs)

    return _custom_getter(getter)


def _custom_getter(getter: Callable[..., Any]) -> AbstractContextManager[Any]:
    scope = tf.compat.v1.get_variable_scope()
    context: AbstractContextManager[Any] = tf.compat.v1.variable_scope(
        scope, custom_getter=getter, auxiliary_name_scope=False
    )
    return context
