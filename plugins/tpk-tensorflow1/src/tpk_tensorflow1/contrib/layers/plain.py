"""Layers without variables, and functions that apply layers several times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk import layers
from tpk_tensorflow1.contrib.framework import add_arg_scope
from tpk_tensorflow1.contrib.layers.scopes import Function, finished, layout_of

v1 = tf.compat.v1

Shape2D = int | Sequence[int]


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: str | None = None,
    seed: int | None = None,
) -> Any:
    """Keep each input with probability `keep_prob` in training; see `tpk.layers.dropout`."""
    rate = 1 - keep_prob
    outputs = layers.dropout(inputs, rate, noise_shape, seed, is_training, name=scope or "Dropout")
    return finished(outputs, outputs_collections)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> Any:
    """Flatten all axes except the batch axis."""
    return finished(layers.flatten(inputs, name=scope or "Flatten"), outputs_collections)


@add_arg_scope
def max_pool2d(inputs: Any, kernel_size: Shape2D, *args: Any, **kwargs: Any) -> Any:
    """Take the maximum of each window; see `avg_pool2d` for the arguments. The default scope is ``MaxPool2D``."""
    return _pool2d(layers.max_pooling2d, "MaxPool2D", inputs, kernel_size, *args, **kwargs)


@add_arg_scope
def avg_pool2d(inputs: Any, kernel_size: Shape2D, *args: Any, **kwargs: Any) -> Any:
    """Take the average of each window.

    Args:
        inputs: a batch of images.
        kernel_size: the height and width of the windows.
        args: `stride` (2 by default), `padding` (``"VALID"``), `data_format` (``"NHWC"``), `outputs_collections`, and
            `scope` (``AvgPool2D``).
        kwargs: the same by name.
    """
    return _pool2d(layers.average_pooling2d, "AvgPool2D", inputs, kernel_size, *args, **kwargs)


def _pool2d(
    pooling: Function,
    default_scope: str,
    inputs: Any,
    kernel_size: Shape2D,
    stride: Shape2D = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    layout = layout_of(data_format)
    outputs = pooling(inputs, kernel_size, stride, padding, layout, name=scope or default_scope)
    return finished(outputs, outputs_collections)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    """Return the one-hot encoding of labels."""
    with tf.name_scope(scope or "OneHotEncoding"):
        outputs = tf.one_hot(tf.cast(labels, tf.int64), num_classes, on_value=on_value, off_value=off_value)
    return finished(outputs, outputs_collections)


def softmax(logits: Any, scope: str | None = None) -> Any:
    """Return the softmax of the last axis."""
    return tf.nn.softmax(logits, name=scope or "softmax")


def repeat(inputs: Any, repetitions: int, layer: Function, *args: Any, **kwargs: Any) -> Any:
    """Apply a layer several times, in scopes ``<scope>/<scope>_1``, ``…_2``, …; `scope` defaults to its name."""
    scope = kwargs.pop("scope", None) or getattr(layer, "__name__", "repeat")
    with v1.variable_scope(scope, "Repeat"):
        for number in range(repetitions):
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{scope}_{number + 1}"})
    return inputs


def stack(inputs: Any, layer: Function, stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Apply a layer once for each element of `stack_args`, in scopes ``<scope>/<scope>_1``, ``…_2``, …."""
    scope = kwargs.pop("scope", None) or getattr(layer, "__name__", "stack")
    with v1.variable_scope(scope, "Stack"):
        for number, args in enumerate(stack_args):
            given = args if isinstance(args, list | tuple) else [args]
            inputs = layer(inputs, *given, **{**kwargs, "scope": f"{scope}_{number + 1}"})
    return inputs
