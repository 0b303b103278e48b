"""Whether a stored value fits a variable: its shape, its dtype, and what is done to it on the way."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.checkpoint.stored_values import STORED_BFLOAT16, StoredValues, ValueSpec
from tpk.errors import CheckpointError
from tpk.graph.variables import variable_name


@attrs.frozen(eq=False)
class Target:
    """A variable that may be restored, as a checkpoint sees it.

    Attributes:
        variable: the variable.
        name: its name in the graph.
        stored_name: the name under which checkpoints have it; that of the whole if it is one part of a partitioned
            variable.
        shape: the shape of what is stored; None if it is not known, or the dimensions of it that are not.
        part: which part of what is stored is the variable's.
    """

    variable: Any
    name: str
    stored_name: str
    shape: tuple[int | None, ...] | None
    part: tuple[slice, ...]

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the variable."""
        return self.variable.dtype.base_dtype

    @property
    def own_shape(self) -> str:
        """The shape of the variable itself."""
        return shape_text(_static_shape(self.variable))

    def alone(self) -> Target:
        """Return the target for a value that is stored for this part of a variable alone."""
        return attrs.evolve(self, stored_name=self.name, shape=_static_shape(self.variable), part=())

    def takes_dtype(self, spec: ValueSpec) -> bool:
        """Whether a value like `spec` may be cast to the dtype of the variable.

        Between floating-point dtypes it always may, though it is rounded; otherwise only if the wanted dtype has
        every value of the stored one. What came as plain Python numbers takes on any dtype of its kind.
        """
        stored, wanted = _tensorflow_dtype(spec), self.dtype
        if stored is None:
            return False
        if stored == wanted:
            return True
        if tf.string in (stored, wanted):
            return False
        if stored.is_floating or stored.is_complex:
            return bool(wanted.is_complex or (stored.is_floating and wanted.is_floating))
        if spec.is_literal and stored.is_integer:
            return not wanted.is_bool
        return bool(np.can_cast(spec.dtype, wanted.as_numpy_dtype, "safe"))


def target_of(variable: Any) -> Target:
    """Return `variable` as a checkpoint sees it."""
    name = variable_name(variable)
    # There is no public accessor; `tf.compat.v1.train.Saver` reads this one.
    whole = getattr(variable, "_save_slice_info", None)
    if whole is None:
        return Target(variable, name, name, _static_shape(variable), ())
    part = tuple(slice(offset, offset + size) for offset, size in zip(whole.var_offset, whole.var_shape, strict=True))
    return Target(variable, name, whole.full_name, tuple(whole.full_shape), part)


def shape_text(shape: tuple[int | None, ...] | None) -> str:
    """Return `shape` for people, such as ``(?, 64)``."""
    return "unknown" if shape is None else str(shape).replace("None", "?")


def _tensorflow_dtype(spec: ValueSpec) -> tf.DType | None:
    if spec.dtype == STORED_BFLOAT16:
        return tf.bfloat16
    try:
        return tf.as_dtype(spec.dtype)
    except TypeError:
        return None


def _static_shape(variable: Any) -> tuple[int | None, ...] | None:
    return None if variable.shape.rank is None else tuple(variable.shape.as_list())


@attrs.frozen(eq=False)
class Fit:
    """A stored value, and the variable that is to have it.

    Attributes:
        target: the variable.
        stored_name: the name of the value.
        values: where it is.
    """

    target: Target
    stored_name: str
    values: StoredValues

    @property
    def spec(self) -> ValueSpec:
        """Shape and dtype of the value."""
        return self.values.spec(self.stored_name)

    @property
    def is_reshaped(self) -> bool:
        """Whether the value has another shape than what the variable takes."""
        wanted, stored = self.target.shape, self.spec.shape
        if wanted is None:
            return False
        return len(wanted) != len(stored) or any(
            size not in (None, other) for size, other in zip(wanted, stored, strict=True)
        )

    @property
    def is_possible(self) -> bool:
        """Whether the value has the shape of the variable, or at least its number of elements."""
        if not self.is_reshaped:
            return True
        wanted = tf.TensorShape(self.target.shape).num_elements()
        return wanted is not None and wanted == int(np.prod(self.spec.shape, dtype=np.int64))

    @property
    def remarks(self) -> list[str]:
        """What of it is not as one expects."""
        remarks = []
        if self.target.part:
            remarks.append(f"part of {self.stored_name}")
        if self.is_reshaped:
            remarks.append("reshaped")
        if not self.spec.is_literal and _tensorflow_dtype(self.spec) != self.target.dtype:
            remarks.append(f"cast from {self.spec.dtype_name} to {self.target.dtype.name}")
        return remarks

    def convert(self, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return what of `value` goes to the variable, in its shape and dtype.

        Raises:
            CheckpointError: if a number in it cannot be held by the dtype of the variable.
        """
        if self.is_reshaped:
            value = value.reshape(self.target.shape)
        value = value[self.target.part]
        if value.dtype == STORED_BFLOAT16:
            value = value.view(tf.bfloat16.as_numpy_dtype)
        wanted = np.dtype(self.target.dtype.as_numpy_dtype)
        if value.dtype == wanted or self.target.dtype == tf.string:
            return value
        if self.spec.is_literal and self.target.dtype.is_floating:
            # A whole number among plain numbers is rounded like the others.
            value = value.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            cast = value.astype(wanted)
            survives = _same_but_rounded(value, cast)
        if not survives.all():
            raise CheckpointError(
                f"variable {self.target.name!r} is {self.target.dtype.name} and cannot hold "
                f"{value[~survives].flat[0]!s}, which {self.values.source} has for it as {self.spec.dtype_name}. "
                "Leave the name out of what is restored, or change the dtype of one of them."
            )
        return cast


def _same_but_rounded(value: np.ndarray[Any, Any], cast: np.ndarray[Any, Any]) -> Any:
    if value.dtype.kind in "biu":
        return cast.astype(value.dtype) == value
    return np.isfinite(cast) | ~np.isfinite(value)
