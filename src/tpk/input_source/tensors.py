"""Tensors that are given for an input signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpk.errors import InputError


def match_tensors(values: Any, signature: tuple[Any, ...], owner: str) -> list[Any]:
    """Return tensors in the order of the signature, each made to have the shape that its spec tells.

    Args:
        values: a list or tuple by position, or a dict by name, of what `tf.convert_to_tensor` takes.
        signature: the checked signature.
        owner: who gives the tensors, for messages.

    Raises:
        InputError: they are not one tensor of the right dtype and of a shape that may fit for each spec.
    """
    if isinstance(values, Mapping):
        names = [spec.name for spec in signature]
        if set(values) != set(names):
            raise InputError(f"{owner} gave the names {sorted(values)}, but the signature has {names}")
        values = [values[name] for name in names]
    if not isinstance(values, (list, tuple)):
        raise InputError(f"{owner} must give a list, tuple or dict of tensors, not {values!r}")
    if len(values) != len(signature):
        raise InputError(
            f"{owner} gave {len(values)} tensors, but the signature has {len(signature)}: "
            f"{[spec.name for spec in signature]}"
        )
    return [
        _match_tensor(value, spec, f"{owner}: component {position} ({spec.name!r})")
        for position, (value, spec) in enumerate(zip(values, signature, strict=True))
    ]


def _match_tensor(value: Any, spec: Any, where: str) -> Any:
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype.base_dtype != spec.dtype:
        raise InputError(f"{where} must be {spec.dtype.name}, but its tensor is {tensor}")
    if not tensor.shape.is_compatible_with(spec.shape):
        raise InputError(f"{where} must have the shape {spec.shape}, but its tensor is {tensor}")
    tensor.set_shape(spec.shape)
    return tensor
