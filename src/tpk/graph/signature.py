"""The signature of a model's inputs: a `tf.TensorSpec` with a name for each, and which arrays fit it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import InputError
from tpk.text import describe_value

Array = np.ndarray[Any, Any]


def check_signature(signature: Sequence[Any]) -> tuple[Any, ...]:
    """Return the signature as a tuple.

    Raises:
        InputError: if an element is not a `tf.TensorSpec` with a name, or two elements have the same name.
    """
    if not isinstance(signature, list | tuple):
        raise InputError(
            f"the input signature is {signature!r}; expected a list: [tf.TensorSpec(shape, dtype, name), ...]"
        )
    specs = tuple(signature)
    for position, spec in enumerate(specs):
        if not isinstance(spec, tf.TensorSpec) or not spec.name:
            raise InputError(
                f"element {position} of the input signature is {spec!r}; expected tf.TensorSpec(shape, dtype, name)"
            )
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise InputError(f"two elements of the input signature have the same name: {names}")
    return specs


class MisfitError(InputError):
    """Raised when a value does not fit its `tf.TensorSpec`. The caller adds which value it is.

    Cure:
        Compare the shape and dtype of the value with the spec in the message: ``inputs()`` of the model has it.
    """


class ArraySpec:
    """Checks and converts arrays for a `tf.TensorSpec`.

    The dtype is changed only where no value can be lost: to a wider type of the same kind, from integers to floating
    point, between sizes of integers if every value fits, and from float64 to less precision if no value overflows.

    Args:
        spec: the `tf.TensorSpec`.

    Attributes:
        spec: the `tf.TensorSpec`.
        dtype: the NumPy dtype of arrays that need no conversion; None for strings, whose elements must be checked.
        shape: the expected sizes, where None is any size; None for any shape.
    """

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.dtype = None if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
        self.shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())

    def __str__(self) -> str:
        return f"{self.spec.dtype.name} of shape {self.spec.shape}"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether arrays of this shape fit."""
        if self.shape is None or shape == self.shape:
            return True
        if len(shape) != len(self.shape):
            return False
        for size, expected in zip(shape, self.shape):  # noqa: B905, SIM110 - equal; hot
            if size != expected and expected is not None:
                return False
        return True

    def convert(self, value: Any) -> Array:
        """Return the value as an array of the spec's dtype; the value itself if it is one already.

        Raises:
            MisfitError: if the value does not fit.
        """
        array = value if type(value) is np.ndarray else self._as_array(value)
        if not self.fits(array.shape):
            raise MisfitError(f"the shape {array.shape} does not fit")
        if self.dtype is None:
            return _as_text(array)
        return array if array.dtype == self.dtype else self._cast(array, self.dtype)

    def _as_array(self, value: Any) -> Array:
        if isinstance(value, np.ma.MaskedArray):
            raise MisfitError("its mask would be lost; fill it (`array.filled(0)`), or make the mask a component")
        try:
            return np.asarray(value, dtype=object if self.dtype is None else None)
        except Exception as error:  # Whatever the `__array__` of a user's type raises.
            raise MisfitError("it cannot be made an array") from error

    def _cast(self, array: Array, dtype: np.dtype[Any]) -> Array:
        if np.can_cast(array.dtype, dtype, "safe"):
            return array.astype(dtype)
        if array.dtype.kind in "iu" and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
                raise MisfitError(f"the values {array.min()} to {array.max()} do not fit into {self.spec.dtype.name}")
            return array.astype(dtype)
        # NumPy does not know that bfloat16 and similar dtypes are floating point.
        is_float = self.spec.dtype.is_floating and array.dtype.kind in "iuf"
        if not is_float and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise MisfitError(f"the dtype {array.dtype} cannot become {self.spec.dtype.name} without loss")
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        if cast.size and np.isinf(cast).any() and (np.isinf(cast) != np.isinf(array)).any():
            raise MisfitError(f"a value of {array.dtype} is too large for {self.spec.dtype.name}")
        return cast


def _as_text(array: Array) -> Array:
    array = array.astype(object, copy=False)
    for element in array.flat:
        if not isinstance(element, (str, bytes)):
            raise MisfitError(f"an element is {describe_value(element)}, not text or bytes")
    return array
