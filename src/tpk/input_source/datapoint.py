"""Conversion of datapoints to the arrays that a signature describes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import InputError
from tpk.graph.signature import Array, ArraySpec, MisfitError
from tpk.text import describe_value

logger = logging.getLogger(__name__)


class DatapointConverter:
    """Turns a datapoint into one array for each spec of a signature.

    A list or tuple is taken by position, a dict by name. An array of the right dtype is returned without a copy; see
    `ArraySpec` for the others.

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
        self._components = list(map(_Component, signature))
        self._has_warned_of_empty = False

    def __call__(self, datapoint: Any, index: int) -> list[Array]:
        """Return the arrays of a datapoint, in the order of the signature.

        Args:
            datapoint: a datapoint of a dataflow.
            index: its number, for messages.

        Raises:
            InputError: wrong structure, shape or dtype; the message names the component, the spec, the value, and the
                datapoint.
        """
        kind = type(datapoint)
        if (kind is not list and kind is not tuple) or len(datapoint) != len(self.names):
            try:
                datapoint = values_in_order(datapoint, self.names)
            except InputError as error:
                raise InputError(f"{self.owner}: datapoint {index} {error}") from None
        arrays = []
        for value, component in zip(datapoint, self._components):  # noqa: B905 - equal; hot
            # Equal dtypes are almost always the same object; `convert` finds the others equal.
            if (
                type(value) is not np.ndarray
                or value.dtype is not component.dtype
                or value.shape != component.last_shape
            ):
                try:
                    value = component.convert(value)
                except MisfitError as misfit:
                    raise self._misfit(misfit, value, component, index) from misfit.__cause__
                component.last_shape = value.shape
            arrays.append(value)
        if arrays and not arrays[0].size and not self._has_warned_of_empty and not any(each.size for each in arrays):
            self._has_warned_of_empty = True
            logger.warning(
                "%s: datapoint %d is empty, and the mean cost of an empty batch is NaN; make the dataflow leave such "
                "datapoints out. Further ones are not reported.",
                self.owner,
                index,
            )
        return arrays

    def _misfit(self, misfit: MisfitError, value: Any, component: ArraySpec, index: int) -> InputError:
        try:
            hint = hint_about_batches(tf.TensorShape(np.shape(value)), component.spec.shape)
        except Exception:  # It has no shape, or is of a user's type that fails.
            hint = ""
        name = component.spec.name
        return InputError(
            f"{self.owner}: datapoint {index}, component {self.names.index(name)} ({name!r}): {misfit}. Expected "
            f"{component}; got {describe_value(value)}{hint and f'. {hint}'}"
        )


class _Component(ArraySpec):
    """A component, and the shape of its last array: most have the same shape as the one before."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        self.last_shape = self.shape


def values_in_order(values: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the components of a datapoint in the order of their names.

    Args:
        values: a list or tuple by position, or a dict by name.
        names: the names in the signature.

    Raises:
        InputError: it is something else, or its components are others; the message lacks the subject.
    """
    if isinstance(values, Mapping):
        if values.keys() != set(names):
            raise InputError(f"has the keys {list(values)}; expected a dict with exactly the keys {names}")
        return [values[name] for name in names]
    listed = ", ".join(names)
    if not isinstance(values, list | tuple):
        remedy = ". Write [value] instead of value" if len(names) == 1 else ""
        if not remedy and isinstance(values, np.ndarray):
            remedy = f". Zip arrays: list(zip({listed}))"
        raise InputError(
            f"is {describe_value(values)}; expected a list or tuple of {len(names)} components ({listed}) or a dict "
            f"with these keys{remedy}"
        )
    if len(values) != len(names):
        raise InputError(f"has {len(values)} components; expected {len(names)}: {listed}")
    return values


def hint_about_batches(shape: Any, expected: Any, batching: str = "tpk.BatchData(flow, batch_size)") -> str:
    """Return a hint if the batch dimension is missing, or if there is one too many; otherwise an empty text.

    Args:
        shape: the `tf.TensorShape` of the data.
        expected: the `tf.TensorShape` of the spec.
        batching: the code that makes batches.
    """
    if shape.rank is None or expected.rank is None:
        return ""
    if shape.rank == expected.rank - 1 and expected[1:].is_compatible_with(shape):
        return f"That is a single datapoint, but the signature describes a batch: write {batching}"
    if shape.rank == expected.rank + 1 and expected.is_compatible_with(shape[1:]):
        return (
            f"That has one batch dimension too many: remove one {batching.partition('(')[0]}, or add None to the front "
            "of the shape in the signature"
        )
    return ""
