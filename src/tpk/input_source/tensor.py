"""Tensors of the graph as data, and the check that tensors fit a signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import InputError
from tpk.input_source.base import InputSource
from tpk.input_source.datapoint import remedy_of_batch
from tpk.plugin.callback import Callback


class TensorInput(InputSource):
    """Takes tensors that a function makes, e.g. from random ops, `tf.io` or someone else's reader.

    Args:
        get_tensor_fn: called inside the graph once for each tower; returns a list or tuple of tensors by
            position, or a dict by name.
        size: how many datapoints make a pass over the data, if that is known.

    Raises:
        InputError: (at `get_input_tensors`) what the function returns does not fit the signature.

    Example:
        ```python
        source = TensorInput(lambda: [tf.random.normal([32, 64]), tf.zeros([32], tf.int32)])
        ```
    """

    def __init__(self, get_tensor_fn: Callable[[], Any], size: int | None = None) -> None:
        self.get_tensor_fn = get_tensor_fn
        self._size = size

    @property
    def size(self) -> int | None:
        """The size that was given."""
        return self._size

    def shard(self, index: int, count: int) -> None:
        """Do nothing: each process makes its own tensors, from random numbers of its own."""

    def _setup(self) -> list[Callback]:
        return []

    def _get_input_tensors(self) -> list[Any]:
        return match_tensors(self.get_tensor_fn(), self.signature, f"the function of {type(self).__name__}")


class DummyConstantInput(TensorInput):
    """Gives zeros (empty strings), to measure how fast everything but the data is.

    Args:
        shapes: a fully known shape for each input; by default those of the signature.

    Raises:
        InputError: (at `get_input_tensors`) a shape is missing, not fully known, or does not fit the
            signature.
    """

    def __init__(self, shapes: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__(self._constants)
        self.shapes = shapes

    def keep_first(self, count: int) -> None:
        """Do nothing: all of its datapoints are the same."""

    def _constants(self) -> list[Any]:
        shapes = [spec.shape for spec in self.signature] if self.shapes is None else self.shapes
        if len(shapes) != len(self.signature):
            raise InputError(
                f"DummyConstantInput has {len(shapes)} shapes, but the signature has {len(self.signature)} "
                f"inputs: {[spec.name for spec in self.signature]}"
            )
        return [_zeros(tf.TensorShape(shape), spec) for shape, spec in zip(shapes, self.signature, strict=True)]


def _zeros(shape: Any, spec: Any) -> Any:
    if not shape.is_fully_defined():
        raise InputError(
            f"DummyConstantInput needs a fully known shape for {spec.name!r}, not {shape}; give it in `shapes`"
        )
    # One value in the graph however large the shape, and no op that makes the zeros anew in each step.
    zero = "" if spec.dtype == tf.string else np.zeros((), spec.dtype.as_numpy_dtype)
    return tf.constant(zero, spec.dtype, shape, name=spec.name)


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
        remedy = remedy_of_batch(tensor.shape, spec.shape, "dataset.batch(batch_size)")
        raise InputError(f"{where} must have the shape {spec.shape}, but its tensor is {tensor}. {remedy}".rstrip(". "))
    tensor.set_shape(spec.shape)
    return tensor
