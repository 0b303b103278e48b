"""What all layers share: their variable scope, their collections and their activation."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tf_slim.layers.utils import collect_named_outputs
from tf_slim.ops.arg_scope import add_arg_scope

v1 = tf.compat.v1

ZEROS = v1.zeros_initializer()

Function = Callable[..., Any]

_NAMES = {
    "kernel": "weights",
    "bias": "biases",
    "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
}


@contextmanager
def layer_scope(scope: Any, default_name: str, reuse: Any, collections: Any) -> Iterator[Any]:
    """Enter the variable scope of a layer, where variables get their old names and are added to collections."""
    model_variables = v1.GraphKeys.MODEL_VARIABLES

    def get_variable(getter: Function, name: str, *args: Any, **kwargs: Any) -> Any:
        prefix, _, last = name.rpartition("/")
        # A normalizer has a separate scope and renames its own variables.
        last = _NAMES.get(last, last)
        variable = getter(f"{prefix}/{last}" if prefix else last, *args, **kwargs)
        further = (collections.get(last) if isinstance(collections, Mapping) else collections) or ()
        for key in [model_variables, *([further] if isinstance(further, str) else further)]:
            if not any(variable is each for each in v1.get_collection_ref(key)):
                v1.add_to_collection(key, variable)
        return variable

    with v1.variable_scope(scope, default_name, reuse=reuse, custom_getter=get_variable) as layer:
        yield layer


def scoped_layer(default_scope: str) -> Callable[[Function], Function]:
    """Decorate a function that computes the outputs of a layer: it gets the arguments that layers share.

    They are `activation_fn`, `reuse`, `variables_collections`, `outputs_collections` and `scope`, all of them by name;
    see `fully_connected`.

    Args:
        default_scope: the default of `scope`, numbered if the name is in use.
    """

    def decorate(compute: Function) -> Function:
        @functools.wraps(compute)
        def applied(
            *args: Any,
            activation_fn: Function | None = None,
            reuse: Any = None,
            variables_collections: Any = None,
            outputs_collections: Any = None,
            scope: Any = None,
            **kwargs: Any,
        ) -> Any:
            with layer_scope(scope, default_scope, reuse, variables_collections) as opened:
                outputs = compute(*args, **kwargs)
                return finished(outputs, outputs_collections, opened.name, activation_fn)

        return add_arg_scope(applied)

    return decorate


def plain_layer(default_scope: str) -> Callable[[Function], Function]:
    """Decorate a function that computes the outputs of a layer without variables: it gets the arguments
    `outputs_collections` and `scope`, both of them by name.

    Args:
        default_scope: the default of `scope`, numbered if the name is in use.
    """

    def decorate(compute: Function) -> Function:
        @functools.wraps(compute)
        def applied(*args: Any, outputs_collections: Any = None, scope: str | None = None, **kwargs: Any) -> Any:
            with v1.name_scope(scope, default_scope) as name:
                outputs = compute(*args, **kwargs)
            return finished(outputs, outputs_collections, name)

        return add_arg_scope(applied)

    return decorate


def named(function: Function, name: str) -> Function:
    """Return a function with another name, by which `arg_scope` knows it."""
    function.__name__ = function.__qualname__ = name
    return function


def finished(outputs: Any, collections: Any, alias: str, activation_fn: Function | None = None) -> Any:
    """Apply the activation, and add the outputs to collections under a name."""
    return collect_named_outputs(collections, alias, outputs if activation_fn is None else activation_fn(outputs))


def layout_of(data_format: str | None) -> str:
    """Return a data format such as ``"NHWC"`` as `tpk.layers` calls it."""
    if data_format is not None and not re.fullmatch("NC(D?H)?W|N(D?H)?WC", data_format):
        raise ValueError(f"data_format={data_format!r}: expected 'NHWC' or 'NCHW'")
    return "channels_first" if (data_format or "").startswith("NC") else "channels_last"
