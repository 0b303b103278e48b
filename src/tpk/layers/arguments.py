"""What a layer is called with: each function checks one argument, and returns its normal form or raises."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from tpk.layers.layer_scope import LayerScope

Pair = int | Sequence[int]
"""(height, width), or one integer for both."""

Function = Callable[[Any], Any]
"""An activation, a regularizer or a constraint."""

_ACTIVATIONS = (
    *("elu", "gelu", "leaky_relu", "log_softmax", "relu", "relu6", "selu", "sigmoid", "silu"),
    *("softmax", "softplus", "softsign", "swish", "tanh"),
)
_INITIALIZERS = (
    *("glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "identity", "lecun_normal"),
    *("lecun_uniform", "ones", "orthogonal", "zeros"),
)
_SET_SHAPE = "Reshape them; where the static shape is unknown, set it with set_shape or in the placeholder."


def one_of(layer: LayerScope, what: str, value: str, known: Sequence[str]) -> str:
    """Return the one of `known` that `value` is, in whatever case."""
    choice = value.lower() if isinstance(value, str) else value
    if choice not in known:
        raise layer.error(what, value, " or ".join(map(repr, known)), f"Pass e.g. {what}={known[0]!r}.")
    return choice


def pair_of(layer: LayerScope, what: str, value: Pair) -> tuple[int, int]:
    """Return (height, width) from two positive integers, or from one for both."""
    try:
        pair = tuple(value) if isinstance(value, Sequence) else (value, value)
        height, width = (operator.index(size) for size in pair)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        expected = "a positive integer or a pair of them"
        raise layer.error(what, value, expected, f"Pass e.g. {what}=3 or {what}=(3, 3).")
    return height, width


def count_of(layer: LayerScope, what: str, value: float) -> int:
    """Return a positive integer; a float can stand for it if nothing is lost, as 32.0 for 32."""
    try:
        count = int(value) if int(value) == value else 0
    except (TypeError, ValueError, OverflowError):
        count = 0
    if count < 1:
        raise layer.error(what, value, "a positive integer", f"Pass e.g. {what}=32.")
    return count


def number_of(layer: LayerScope, what: str, value: Any, example: float) -> float:
    """Return a real number, one of NumPy's too, as a float."""
    if not isinstance(value, Real):
        raise layer.error(what, value, "a number", f"Pass e.g. {what}={example}.")
    return float(value)


def number_or_tensor_of(layer: LayerScope, what: str, value: Any, example: float, dtype: Any) -> Any:
    """Return a real number as a float, and a scalar tensor or variable of whatever real type as a tensor of `dtype`."""
    if isinstance(value, tf.Variable | np.ndarray) or tf.is_tensor(value):
        tensor = tf.convert_to_tensor(value)
        if tensor.shape.rank in (0, None) and (tensor.dtype.is_floating or tensor.dtype.is_integer):
            return tf.cast(tensor, dtype)
    elif isinstance(value, Real):
        return float(value)
    raise layer.error(what, value, "a number or a scalar tensor", f"Pass e.g. {what}={example}.")


def known_rank(layer: LayerScope, at_least: int, axes: str) -> int:
    """Return the rank of the inputs, which must be known; `axes` names them in the error."""
    if layer.shape is None or len(layer.shape) < at_least:
        expected = f"a shape of rank {at_least} or more: {axes}"
        raise layer.error("the shape of the inputs", layer.shape, expected, _SET_SHAPE)
    return len(layer.shape)


def known_size(layer: LayerScope, axis: int, what: str) -> int:
    """Return the size of the inputs along `axis`, which must be known, as shapes of variables depend on it."""
    size = None if layer.shape is None else layer.shape[axis]
    if size is None:
        expected = f"a shape whose axis {axis}, the {what}, is known, as that of a variable depends on it"
        raise layer.error("the shape of the inputs", layer.shape, expected, _SET_SHAPE)
    return size


def require_images(layer: LayerScope, axes: Sequence[str]) -> None:
    """Refuse inputs that are no batch of images; `axes` names the four axes in the error."""
    if layer.shape is None or len(layer.shape) != 4:
        expected = f"a shape of rank 4: ({', '.join(axes)})"
        raise layer.error("the shape of the inputs", layer.shape, expected, _SET_SHAPE)


def require_floating(layer: LayerScope) -> None:
    """Refuse inputs that are no floating-point or complex numbers."""
    dtype = layer.inputs.dtype.base_dtype
    if not (dtype.is_floating or dtype.is_complex):
        remedy = "Cast them, e.g. with tf.cast(x, tf.float32)."
        raise layer.error("the dtype of the inputs", dtype.name, "a floating-point type", remedy)


def activation_of(layer: LayerScope, activation: Function | str | None) -> Function | None:
    """Return an activation function, or None for a linear one; it may be given by its name in `tf.nn`."""
    if activation == "linear":
        return None
    if isinstance(activation, str):
        return _named(layer, "activation", activation, _ACTIVATIONS, tf.nn)
    return function_of(layer, "activation", activation)


def initializer_of(layer: LayerScope, what: str, initializer: Any) -> Any:
    """Return an initializer or None; it may be given by its name in `tf.compat.v1.initializers`."""
    if isinstance(initializer, str):
        return _named(layer, what, initializer, _INITIALIZERS, tf.compat.v1.initializers)()
    return function_of(layer, what, initializer)


def function_of(layer: LayerScope, what: str, function: Function | None) -> Function | None:
    """Return `function` if it can be called or is None."""
    if function is None or callable(function):
        return function
    raise layer.error(what, function, "a function or None", "Pass the function that computes it.")


def _named(layer: LayerScope, what: str, name: str, names: Sequence[str], module: Any) -> Callable[..., Any]:
    if name not in names:
        raise layer.error(what, name, f"a function or one of {', '.join(names)}", "Pass the function itself.")
    found: Callable[..., Any] = getattr(module, name)
    return found
