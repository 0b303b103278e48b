"""The signature of a model's inputs: a `tf.TensorSpec` with a name for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import InputError


def check_signature(signature: Sequence[Any]) -> tuple[Any, ...]:
    """Return the signature as a tuple.

    Raises:
        InputError: it is empty, or an element is no `tf.TensorSpec`, or has no name, or that of another one.
    """
    specs = tuple(signature)
    if not specs:
        raise InputError("the input signature is empty; give a tf.TensorSpec for each input of the model")
    for position, spec in enumerate(specs):
        if not isinstance(spec, tf.TensorSpec):
            raise InputError(f"element {position} of the input signature is no tf.TensorSpec but {spec!r}")
        if not spec.name:
            raise InputError(
                f"element {position} of the input signature has no name: {spec}; "
                "write tf.TensorSpec(shape, dtype, name)"
            )
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise InputError(f"two elements of the input signature have the same name: {names}")
    return specs
