"""The signature of a model's inputs: a `tf.TensorSpec` with a name for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import InputError


def check_signature(signature: Sequence[Any]) -> tuple[Any, ...]:
    """Return the signature as a tuple.

    Raises:
        InputError: an element is not a `tf.TensorSpec`, has no name, or has the name of another element.
    """
    if not isinstance(signature, list | tuple):
        raise InputError(
            f"the input signature is {signature!r}; expected a list: [tf.TensorSpec(shape, dtype, name), ...]"
        )
    specs = tuple(signature)
    for position, spec in enumerate(specs):
        if not isinstance(spec, tf.TensorSpec):
            raise InputError(
                f"element {position} of the input signature is no tf.TensorSpec but {spec!r}. Write {_as_spec(spec)}"
            )
        if not spec.name:
            raise InputError(
                f"element {position} of the input signature has no name: {spec}; "
                "write tf.TensorSpec(shape, dtype, name)"
            )
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise InputError(f"two elements of the input signature have the same name: {names}")
    return specs


def _as_spec(value: Any) -> str:
    """What to write in place of what is no spec."""
    if isinstance(value, tuple) and len(value) == 3:
        shape, dtype, name = value
        if isinstance(dtype, tf.DType) and isinstance(name, str):
            return f"tf.TensorSpec({shape}, tf.{dtype.name}, {name!r})"
    if isinstance(value, tf.Tensor) and hasattr(value, "op") and value.op.type.startswith("Placeholder"):
        return f"tf.TensorSpec({value.shape}, tf.{value.dtype.name}, {value.op.name!r}), and no placeholder"
    return "tf.TensorSpec(shape, dtype, name)"
