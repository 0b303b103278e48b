"""Inputs of a predictor: which it needs, and what it is called with, checked and made arrays."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import InputError
from tpk.input_source.datapoint import DatapointConverter

Array = np.ndarray[Any, Any]

_NEED_A_FEED = ("Placeholder", "PlaceholderV2")


class InputCheck:
    """Turns what a predictor is called with into one array for each of its inputs.

    An array of the right dtype is handed on as it is; otherwise the dtype is changed where no value can be lost to
    that, as for the data of a training.

    Args:
        specs: a `tf.TensorSpec` for each input, by name, in their order.
        remedy: what a message says to do if a shape does not fit and nothing better is known.

    Attributes:
        names: the names of the inputs.
        specs: what is expected of each.
    """

    def __init__(
        self, specs: Mapping[str, Any], remedy: str = "Give an array of that shape, of numbers that fit the dtype."
    ) -> None:
        self.names = list(specs)
        self.specs = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()]
        self._remedy = remedy
        self._slots = [_Slot(spec) for spec in self.specs]

    def __call__(self, arguments: Sequence[Any]) -> list[Array]:
        """Return the arrays, in the order of the inputs.

        Args:
            arguments: a value for each input, in order; or one mapping of their names to values.

        Raises:
            InputError: if there are more or fewer than there are inputs, or one does not fit; it names the input.
        """
        if len(arguments) == 1 and isinstance(arguments[0], Mapping):
            arguments = self._in_order(arguments[0])
        elif len(arguments) != len(self._slots):
            raise InputError(
                f"the predictor takes {len(self.names)} inputs ({', '.join(self.names) or 'none'}), got "
                f"{len(arguments)}. Give one array for each, in this order, or a dict with these keys."
            )
        return [
            value
            if type(value) is np.ndarray and value.dtype == slot.dtype and slot.fits(value.shape)
            else self._convert(value, slot)
            for value, slot in zip(arguments, self._slots)  # noqa: B905 - equal; hot
        ]

    def _convert(self, value: Any, slot: _Slot) -> Array:
        try:
            array: Array = slot.converter([value], 0)[0]
        except InputError as error:
            spec = slot.spec
            raise InputError(
                f"the input {spec.name!r} of the predictor does not fit: expected {spec.dtype.name} of shape "
                f"{spec.shape}, got {_describe(value)}. {self._what_to_do(value, spec)}"
            ) from error
        return array

    def _in_order(self, by_name: Mapping[Any, Any]) -> list[Any]:
        values = {key.removesuffix(":0") if isinstance(key, str) else key: value for key, value in by_name.items()}
        missing = [name for name in self.names if name not in values]
        unexpected = [key for key in values if key not in self.names]
        if missing or unexpected:
            near = [f"{key!r} (did you mean {name!r}?)" for key in unexpected for name in _near(key, missing)]
            raise InputError(
                f"the predictor was called with a dict that lacks {missing or 'nothing'} and has "
                f"{', '.join(near) or unexpected or 'nothing'} besides. Give exactly the keys {self.names}."
            )
        return [values[name] for name in self.names]

    def _what_to_do(self, value: Any, spec: Any) -> str:
        shape = np.shape(value) if isinstance(value, np.ndarray | np.generic | float | list | tuple) else None
        takes_batches = spec.shape.rank and tf.compat.dimension_value(spec.shape[0]) is None
        is_one = takes_batches and shape is not None and len(shape) == spec.shape.rank - 1
        if is_one and spec.shape[1:].is_compatible_with(shape):
            return "The model takes a batch: give array[np.newaxis] for a single one."
        return self._remedy


def arguments_of(datapoint: Any) -> Sequence[Any]:
    """Return the arguments with which a predictor is called for a datapoint.

    Raises:
        InputError: if it is no list, tuple or dict.
    """
    if isinstance(datapoint, Mapping):
        return [datapoint]
    if isinstance(datapoint, list | tuple):
        return datapoint
    raise InputError(
        f"a datapoint is {_describe(datapoint)}; expected a list or tuple with an array for each input, or a dict by "
        "the names of the inputs."
    )


def placeholders_beneath(outputs: Iterable[Any], fed: Iterable[Any] = ()) -> list[Any]:
    """Return the placeholders that must be fed to compute `outputs`, besides the tensors in `fed`."""
    known = {tensor.name for tensor in fed}
    waiting = [tensor.op for tensor in outputs if tensor.name not in known]
    seen = {op.name for op in waiting}
    found = {}
    while waiting:
        op = waiting.pop()
        if op.type in _NEED_A_FEED:
            found[op.name] = op.outputs[0]
        beneath = [*(tensor.op for tensor in op.inputs if tensor.name not in known), *op.control_inputs]
        for other in beneath:
            if other.name not in seen:
                seen.add(other.name)
                waiting.append(other)
    return list(found.values())


def inputs_beneath(outputs: Iterable[Any], names: Sequence[str], inputs: Sequence[Any]) -> dict[str, Any]:
    """Return those of the `inputs` of a tower, by their `names`, which `outputs` depend on."""
    needed = {tensor.name for tensor in placeholders_beneath(outputs)}
    return {name: tensor for name, tensor in zip(names, inputs, strict=True) if tensor.name in needed}


def check_feeds_suffice(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Check that `outputs` can be computed from `inputs`.

    Raises:
        InputError: if not; it names the placeholders that are missing.
    """
    missing = placeholders_beneath(outputs, inputs)
    if missing:
        raise InputError(
            f"the outputs {_names(outputs)} depend on {_names(missing)}, which is not among the inputs "
            f"({_names(inputs) or 'none'}). Add it to the input names, or name outputs that do not need it."
        )


def _names(tensors: Iterable[Any]) -> str:
    return ", ".join(repr(tensor.name.removesuffix(":0")) for tensor in tensors)


class _Slot:
    """What an input takes, with what it takes to see quickly whether an array fits."""

    __slots__ = ("_dims", "converter", "dtype", "spec")

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        # The elements of an array of objects have to be looked at, which the converter does.
        self.dtype = None if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
        self.converter = DatapointConverter((spec,), "predictor")
        self._dims = None if spec.shape.rank is None else tuple(spec.shape.as_list())

    def fits(self, shape: tuple[int, ...]) -> bool:
        dims = self._dims
        if dims is None or dims == shape:
            return True
        if len(dims) != len(shape):
            return False
        for dim, size in zip(dims, shape):  # noqa: B905, SIM110 - equal; hot
            if dim != size and dim is not None:
                return False
        return True


def _near(key: Any, names: Sequence[str]) -> list[str]:
    lower = {name.lower(): name for name in names}
    return [lower[near] for near in difflib.get_close_matches(str(key).lower(), list(lower), n=1, cutoff=0.5)]


def _describe(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__} of dtype {value.dtype} and shape {tuple(value.shape)}"
    return f"{type(value).__name__} {reprlib.repr(value)}"
