"""Tensors of the graph as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import InputError
from tpk.input_source.base import InputSource
from tpk.input_source.datapoint import hint_about_batches, values_in_order
from tpk.plugin.callback import Callback


class TensorInput(InputSource):
    """Takes the tensors that a function returns, for example from random ops, `tf.io` or another library's reader.

    Args:
        get_tensor_fn: called inside the graph once for each tower; returns a list or tuple of tensors by
            position, or a dict by name. A `tf.Variable` that it makes belongs to that tower.
        size: the number of datapoints in a pass over the data, if known.

    Raises:
        InputError: (at `get_input_tensors`) the tensors do not fit the signature.

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
        """The given size."""
        return self._size

    def shard(self, index: int, count: int) -> None:
        """Do nothing: each process makes its own tensors from its own random numbers."""

    def _setup(self) -> list[Callback]:
        return []

    def _get_input_tensors(self) -> list[Any]:
        return match_tensors(self.get_tensor_fn(), self.signature, f"the datapoint of {type(self).__name__}")


class DummyConstantInput(TensorInput):
    """Delivers zeros and empty strings, to measure the speed of everything except the data.

    Args:
        shapes: a fully known shape for each input; by default the shapes of the signature.

    Raises:
        InputError: (at `get_input_tensors`) a shape is missing, not fully known, or does not fit the
            signature.
    """

    def __init__(self, shapes: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__(self._constants)
        self.shapes = shapes

    def keep_first(self, count: int) -> None:
        """Do nothing: all datapoints are the same."""

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
    # One value in the graph, however large the shape, and no op that makes the zeros again in each step.
    zero = "" if spec.dtype == tf.string else np.zeros((), spec.dtype.as_numpy_dtype)
    return tf.constant(zero, spec.dtype, shape, name=spec.name)


def match_tensors(values: Any, signature: tuple[Any, ...], owner: str) -> list[Any]:
    """Return tensors in the order of the signature, each with the shape of its spec.

    Args:
        values: a list or tuple by position, or a dict by name, of values for `tf.convert_to_tensor`.
        signature: the checked signature.
        owner: where the tensors come from, for messages.

    Raises:
        InputError: there is not one tensor with the right dtype and a compatible shape for each spec.
    """
    try:
        values = values_in_order(values, [spec.name for spec in signature])
    except InputError as error:
        raise InputError(f"{owner} {error}") from None
    return [
        _match_tensor(value, spec, f"{owner}: component {position} ({spec.name!r})")
        for position, (value, spec) in enumerate(zip(values, signature, strict=True))
    ]


def _match_tensor(value: Any, spec: Any, where: str) -> Any:
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype.base_dtype != spec.dtype:
        raise InputError(f"{where} must be {spec.dtype.name}, but its tensor is {tensor}")
    if not tensor.shape.is_compatible_with(spec.shape):
        hint = hint_about_batches(tensor.shape, spec.shape, "dataset.batch(batch_size)")
        raise InputError(f"{where} must have the shape {spec.shape}, but its tensor is {tensor}{hint and f'. {hint}'}")
    tensor.set_shape(spec.shape)
    return tensor
