"""Adapt layers of `tf.layers` to tensorpack's variable names and former arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tpk.graph import custom_getter_scope
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils.argtools import get_data_format

__all__: list[str] = []

Layer = Callable[..., Any]

WEIGHT_NAMES = {"kernel": "W", "bias": "b"}
MOVING_NAMES = {"moving_mean": "mean/EMA", "moving_variance": "variance/EMA"}
"""tensorpack's names of the variables of `tf.layers`."""

_OLD_NAMES = {"W_init": "kernel_initializer", "b_init": "bias_initializer", "nl": "activation"}


def convert_to_tflayer_args(args_names: Sequence[str], name_mapping: Mapping[str, str]) -> Callable[[Layer], Layer]:
    """Return a decorator that lets a layer with the arguments of `tf.layers` accept tensorpack's former ones.

    These are old names (``W_init``, ``b_init``, ``nl``), some positional arguments after the inputs, and a
    `data_format` as spelled by TensorFlow's ops (``"NCHW"``).

    Args:
        args_names: the arguments that may be positional, after the inputs.
        name_mapping: further old names and their current names.

    Example:
        ```python
        @layer_register(log_shape=True)
        @convert_to_tflayer_args(args_names=["filters"], name_mapping={"out_channel": "filters"})
        def Pointwise(inputs, filters, activation=None):
            with rename_get_variable({"kernel": "W", "bias": "b"}):
                return tf.layers.conv2d(inputs, filters, 1, activation=activation, name=tf.get_variable_scope())
        ```
    """
    names = {**_OLD_NAMES, **name_mapping}

    def decorate(func: Layer) -> Layer:
        @functools.wraps(func)
        def layer(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > len(args_names):
                raise CheckError(
                    f"{func.__name__} takes {', '.join(args_names)} by position after the inputs; "
                    f"pass the other {len(args) - len(args_names)} by name"
                )
            arguments = dict(zip(args_names, args, strict=False))
            for name, value in kwargs.items():
                now = names.get(name, name)
                if now in arguments:
                    raise CheckError(
                        f"{func.__name__} got {now!r} twice" + (f", once as {name!r}" if now != name else "")
                    )
                arguments[now] = value
            if "data_format" in arguments:
                arguments["data_format"] = get_data_format(arguments["data_format"])
            return func(inputs, **arguments)

        return layer

    return decorate


def rename_get_variable(mapping: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Return a context in which `tf.get_variable` renames the variables of the current scope.

    Args:
        mapping: the names and their replacements.
    """
    return _renaming(mapping, only_in=tf.compat.v1.get_variable_scope().name)


def rename_tflayer_get_variable() -> AbstractContextManager[Any]:
    """Return a context in which the variables of `tf.layers` have tensorpack's names.

    That is ``W`` and ``b`` for kernel and bias, ``mean/EMA`` and ``variance/EMA`` for the moving averages.

    Example:
        ```python
        with tf.variable_scope("first"), rename_tflayer_get_variable():
            x = tf.layers.conv2d(x, 32, 3, name=tf.get_variable_scope())  # first/W, first/b
        ```
    """
    return _renaming({**WEIGHT_NAMES, **MOVING_NAMES})


def _renaming(names: Mapping[str, str], only_in: str | None = None) -> AbstractContextManager[Any]:
    """Return a context in which variables are renamed, in one scope only or in all."""

    def getter(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        scope, _, last = name.rpartition("/")
        if only_in in (None, scope):
            last = names.get(last, last)
        return getter(f"{scope}/{last}" if scope else last, *args, **kwargs)

    return custom_getter_scope(getter)
