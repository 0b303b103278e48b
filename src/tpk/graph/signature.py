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
                f"element {position} of the input signature is {spec!r}; expected tf.TensorSpec(shape, dtype, name)"
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
