"""What all layers share: their variable scope, their collections and their activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

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
        further = collections.get(last, ()) if isinstance(collections, Mapping) else collections or ()
        for key in [model_variables, *([further] if isinstance(further, str) else further)]:
            if not any(variable is each for each in v1.get_collection_ref(key)):
                v1.add_to_collection(key, variable)
        return variable

    with v1.variable_scope(scope, default_name, reuse=reuse, custom_getter=get_variable) as layer:
        yield layer


def finished(outputs: Any, collections: Any, activation_fn: Function | None = None) -> Any:
    """Apply the activation, and add the outputs to collections."""
    outputs = outputs if activation_fn is None else activation_fn(outputs)
    if collections:
        v1.add_to_collections(collections, outputs)
    return outputs


def layout_of(data_format: str | None) -> str:
    """Return the data format as `tpk.layers` calls it."""
    if data_format not in (None, "NHWC", "NCHW"):
        raise ValueError(f"data_format={data_format!r}: expected 'NHWC' or 'NCHW'")
    return "channels_first" if data_format == "NCHW" else "channels_last"
