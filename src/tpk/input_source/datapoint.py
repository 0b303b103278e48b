"""Conversion of what a dataflow delivers to the arrays that a signature asks for."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import InputError

Array = np.ndarray[Any, Any]

logger = logging.getLogger(__name__)


class DatapointConverter:
    """Turns a datapoint into one array for each spec of a signature.

    A list or tuple is taken by position, a dict by name. An array of the right dtype is handed on as it is,
    without a copy; else the dtype is changed where no value can be lost to that: to a wider type of the same
    kind, from whole numbers to floating point, from one size of whole numbers to another one if every value
    fits, and from float64 to less precision if no value overflows.

    Args:
        signature: the checked signature.
        owner: the name of the input source, for messages.

    Raises:
        InputError: the signature is empty: a model without inputs takes no datapoints.
    """

    def __init__(self, signature: tuple[Any, ...], owner: str) -> None:
        if not signature:
            raise InputError(
                f"{owner} has data, but the model has no inputs. Give it tpk.TensorInput(lambda: []) instead, or the "
                "model a tf.TensorSpec for each component."
            )
        self.owner = owner
        self.names = [spec.name for spec in signature]
        self._components = [_Component(spec, position) for position, spec in enumerate(signature)]
        self._has_warned_of_empty = False

    def __call__(self, datapoint: Any, index: int) -> list[Array]:
        """Return the arrays of a datapoint, in the order of the signature.

        Args:
            datapoint: what the dataflow delivered.
            index: its number, for messages.

        Raises:
            InputError: wrong structure, shape or dtype; it names component, spec, what came, and the
                datapoint.
        """
        if type(datapoint) is not list and type(datapoint) is not tuple:
            datapoint = self._values_in_order(datapoint, index)
        if len(datapoint) != len(self._components):
            raise InputError(
                f"{self.owner}: datapoint {index} has {len(datapoint)} components; "
                f"expected {len(self.names)}: {', '.join(self.names)}"
            )
        arrays = []
        for value, component in zip(datapoint, self._components):  # noqa: B905 - equal; hot
            # Equal dtypes are one object, as good as always; where they are not, `convert` finds them equal.
            if (
                type(value) is not np.ndarray
                or value.dtype is not component.fast_dtype
                or value.shape != component.fast_shape
            ):
                try:
                    value = component.convert(value)
                except _MisfitError as misfit:
                    raise InputError(
                        f"{self.owner}: datapoint {index}, component {component.position} "
                        f"({component.spec.name!r}): {misfit}. Expected {component.expected}; "
                        f"got {_describe(value)}{self._remedy(component, value)}"
                    ) from misfit.__cause__
            arrays.append(value)
        if arrays and not arrays[0].size and not self._has_warned_of_empty and not any(each.size for each in arrays):
            self._has_warned_of_empty = True
            logger.warning(
                "%s: datapoint %d is empty, and the mean cost of an empty batch is NaN; let the dataflow leave such "
                "datapoints out. Further ones are not reported.",
                self.owner,
                index,
            )
        return arrays

    def _remedy(self, component: _Component, value: Any) -> str:
        try:
            remedy = remedy_of_batch(tf.TensorShape(np.shape(value)), component.spec.shape)
        except Exception:  # It has no shape, or is of a user's type that fails.
            return ""
        if remedy and self.owner == "BatchQueueInput":
            remedy = "BatchQueueInput makes the batches itself: give it single datapoints, without BatchData"
        return f". {remedy}" if remedy else ""

    def _values_in_order(self, datapoint: Any, index: int) -> list[Any] | tuple[Any, ...]:
        if isinstance(datapoint, Mapping):
            missing = [name for name in self.names if name not in datapoint]
            unexpected = [key for key in datapoint if key not in self.names]
            if missing or unexpected:
                raise InputError(
                    f"{self.owner}: datapoint {index} lacks {missing or 'nothing'} and has "
                    f"{unexpected or 'nothing'} besides; expected a dict with exactly the keys {self.names}"
                )
            return [datapoint[name] for name in self.names]
        if isinstance(datapoint, (list, tuple)):
            return datapoint
        raise InputError(
            f"{self.owner}: datapoint {index} is {_describe(datapoint)}; expected a list or tuple of "
            f"{len(self.names)} components ({', '.join(self.names)}) or a dict with these keys. {self._zip()}"
        )

    def _zip(self) -> str:
        if len(self.names) == 1:
            return "Write [value] in place of value"
        return f"Where each of these is an array of all datapoints, write list(zip({', '.join(self.names)}))"


def remedy_of_batch(shape: Any, expected: Any, batching: str = "tpk.BatchData(flow, batch_size)") -> str:
    """Return what to write for data of which a batch is missing, or is one too many; empty if neither is so.

    Args:
        shape: the `tf.TensorShape` of a component of a datapoint.
        expected: that of its spec.
        batching: what makes a batch.
    """
    if shape.rank is None or expected.rank is None:
        return ""
    if shape.rank == expected.rank - 1 and expected[1:].is_compatible_with(shape):
        return f"That is a single datapoint, and the signature wants a batch: write {batching}"
    if shape.rank == expected.rank + 1 and expected.is_compatible_with(shape[1:]):
        maker = batching.partition("(")[0]
        if expected.rank and expected.as_list()[0] is None:
            return f"That is a batch of batches: leave out one {maker}"
        return f"That is a batch where one datapoint is wanted: leave out {maker}, or let the shape begin by None"
    return ""


class _MisfitError(Exception):
    """Why a value does not fit its spec; the converter adds which value of which datapoint."""


class _Component:
    """One spec of a signature, with what is needed to check and convert a value quickly."""

    def __init__(self, spec: Any, position: int) -> None:
        self.spec = spec
        self.position = position
        self.is_text = spec.dtype == tf.string
        self.dtype = np.dtype(spec.dtype.as_numpy_dtype)
        # The elements of an object array must be looked at, so it is never fast.
        self.fast_dtype = None if self.is_text else self.dtype
        self.shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
        # Where the spec leaves sizes open, that of the last array: most have the shape of the one before.
        self.fast_shape = self.shape
        self.expected = f"{spec.dtype.name} of shape {spec.shape}"

    def convert(self, value: Any) -> Array:
        """Return the value as an array of the spec's dtype, itself if it is one already."""
        array = value if type(value) is np.ndarray else self._as_array(value)
        if not self._fits(array.shape):
            raise _MisfitError(f"the shape {array.shape} does not fit")
        self.fast_shape = array.shape
        if self.is_text:
            return _as_text(array)
        return array if array.dtype == self.dtype else self._cast(array)

    def _as_array(self, value: Any) -> Array:
        if isinstance(value, np.ma.MaskedArray):
            raise _MisfitError("its mask would be lost; fill it (`array.filled(0)`), or make the mask a component")
        try:
            return np.asarray(value, dtype=object if self.is_text else None)
        except Exception as error:  # whatever the `__array__` of a user's type raises
            raise _MisfitError("it cannot be made an array") from error

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if self.shape is None or shape == self.shape:
            return True
        if len(shape) != len(self.shape):
            return False
        for size, expected in zip(shape, self.shape):  # noqa: B905, SIM110 - equal; hot
            if size != expected and expected is not None:
                return False
        return True

    def _cast(self, array: Array) -> Array:
        if np.can_cast(array.dtype, self.dtype, "safe"):
            return array.astype(self.dtype)
        if array.dtype.kind in "iu" and self.dtype.kind in "iu":
            limits = np.iinfo(self.dtype)
            if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
                raise _MisfitError(f"the values {array.min()} to {array.max()} do not fit into {self.spec.dtype.name}")
            return array.astype(self.dtype)
        # NumPy does not know that bfloat16 and its kin are floating point.
        if np.can_cast(array.dtype, self.dtype, "same_kind") or (
            self.spec.dtype.is_floating and array.dtype.kind in "iuf"
        ):
            return self._cast_in_range(array)
        raise _MisfitError(f"the dtype {array.dtype} cannot become {self.spec.dtype.name} without loss")

    def _cast_in_range(self, array: Array) -> Array:
        with np.errstate(over="ignore"):
            cast = array.astype(self.dtype)
        if cast.size and np.isinf(cast).any() and (np.isinf(cast) != np.isinf(array)).any():
            raise _MisfitError(f"a value of {array.dtype} is too large for {self.spec.dtype.name}")
        return cast


def _as_text(array: Array) -> Array:
    array = array.astype(object, copy=False)
    for element in array.flat:
        if not isinstance(element, (str, bytes)):
            raise _MisfitError(f"an element is {_describe(element)}, not text or bytes")
    return array


def _describe(value: Any) -> str:
    kind = type(value).__name__
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{kind} of dtype {value.dtype} and shape {tuple(value.shape)}"
    return f"{kind} {reprlib.repr(value)}"
