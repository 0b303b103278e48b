"""The inputs of a predictor: finding the inputs it needs, and converting its arguments to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import InputError
from tpk.graph.fetches import ops_from
from tpk.graph.signature import Array, ArraySpec, MisfitError
from tpk.text import describe_value, nearest

_PLACEHOLDERS = ("Placeholder", "PlaceholderV2")


class InputCheck:
    """Converts the arguments of a predictor to one array for each input; see `ArraySpec`.

    Args:
        specs: a `tf.TensorSpec` for each input, by name, in order.
        remedy: the advice in the message about an array that does not fit.

    Attributes:
        names: the names of the inputs.
        specs: the `tf.TensorSpec` of each input, with its name.
    """

    def __init__(
        self, specs: Mapping[str, Any], remedy: str = "Pass an array of that shape, with numbers that fit the dtype."
    ) -> None:
        self.names = list(specs)
        self.specs = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()]
        self._remedy = remedy
        self._expected = list(map(ArraySpec, self.specs))

    def __call__(self, arguments: Sequence[Any]) -> list[Array]:
        """Return the arrays, in the order of the inputs.

        Args:
            arguments: a value for each input, in order, or one mapping of input names to values.

        Raises:
            InputError: if the number of values is wrong, or one does not fit; the message names the input.
        """
        if len(arguments) == 1 and isinstance(arguments[0], Mapping):
            arguments = self._in_order(arguments[0])
        elif len(arguments) != len(self.names):
            raise InputError(
                f"the predictor takes {len(self.names)} inputs ({', '.join(self.names) or 'none'}), got "
                f"{len(arguments)}. Pass one array for each, in this order, or a dict with these keys."
            )
        return [
            value
            if type(value) is np.ndarray and value.dtype == expected.dtype and expected.fits(value.shape)
            else self._convert(value, expected)
            for value, expected in zip(arguments, self._expected)  # noqa: B905 - equal; hot
        ]

    def _convert(self, value: Any, expected: ArraySpec) -> Array:
        try:
            return expected.convert(value)
        except MisfitError as misfit:
            raise InputError(
                f"the input {expected.spec.name!r} of the predictor does not fit ({misfit}): expected {expected}, got "
                f"{describe_value(value)}. {self._advice(value, expected)}"
            ) from misfit.__cause__

    def _in_order(self, by_name: Mapping[Any, Any]) -> list[Any]:
        values = {key.removesuffix(":0") if isinstance(key, str) else key: value for key, value in by_name.items()}
        missing = [name for name in self.names if name not in values]
        unexpected = [key for key in values if key not in self.names]
        if missing or unexpected:
            hint = "".join(nearest(str(key), missing) for key in unexpected)
            raise InputError(
                f"the predictor was called with a dict with missing keys {missing} and unexpected keys {unexpected}. "
                f"Pass exactly the keys {self.names}.{hint}"
            )
        return [values[name] for name in self.names]

    def _advice(self, value: Any, expected: ArraySpec) -> str:
        takes_batches = expected.shape and expected.shape[0] is None
        has_shape = isinstance(value, np.ndarray | np.generic | float | list | tuple)
        if takes_batches and has_shape and expected.fits((1, *np.shape(value))):
            return "The model takes a batch: pass array[np.newaxis] for a single datapoint."
        return self._remedy


def arguments_of(datapoint: Any) -> Sequence[Any]:
    """Return the arguments of a predictor for a datapoint.

    Raises:
        InputError: if the datapoint is not a list, tuple or dict.
    """
    if isinstance(datapoint, Mapping):
        return [datapoint]
    if isinstance(datapoint, list | tuple):
        return datapoint
    raise InputError(
        f"a datapoint is {describe_value(datapoint)}; expected a list or tuple with an array for each input, or a dict "
        "by input name."
    )


def placeholders_beneath(outputs: Iterable[Any], fed: Iterable[Any] = ()) -> list[Any]:
    """Return the placeholders that must be fed to compute `outputs`, except the tensors in `fed`."""
    known = {tensor.name for tensor in fed}

    def sources(op: Any) -> list[Any]:
        return [*(tensor.op for tensor in op.inputs if tensor.name not in known), *op.control_inputs]

    needed = ops_from([tensor for tensor in outputs if tensor.name not in known], sources)
    return [op.outputs[0] for op in needed if op.type in _PLACEHOLDERS]


def inputs_beneath(outputs: Iterable[Any], names: Sequence[str], inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the `inputs` of a tower that `outputs` depend on, by their `names`."""
    needed = {tensor.name for tensor in placeholders_beneath(outputs)}
    return {name: tensor for name, tensor in zip(names, inputs, strict=True) if tensor.name in needed}


def check_feeds_suffice(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Check that `outputs` can be computed from `inputs`.

    Raises:
        InputError: if they cannot; the message names the missing placeholders.
    """
    missing = placeholders_beneath(outputs, inputs)
    if missing:
        raise InputError(
            f"the outputs {_names(outputs)} depend on {_names(missing)}, which is not among the inputs "
            f"({_names(inputs) or 'none'}). Add it to the input names, or choose outputs that do not need it."
        )


def _names(tensors: Iterable[Any]) -> str:
    return ", ".join(repr(tensor.name.removesuffix(":0")) for tensor in tensors)
