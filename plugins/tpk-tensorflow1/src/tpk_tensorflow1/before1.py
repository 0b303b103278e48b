"""Names of TensorFlow before 1.0, with the arguments of their time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.contrib import deprecated

v1 = tf.compat.v1


_RENAMED = {"concat_dim": "axis", "num_split": "num_or_size_splits", "split_dim": "axis"}


def _axis_first(function: Callable[..., Any], order: Sequence[str]) -> Callable[..., Any]:
    """Return a function whose first argument may also be the axis, and whose arguments may have their older names.

    Args:
        function: the function of today.
        order: the arguments in their older order, but with the names of today.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Integral):
            args, kwargs = (), {**dict(zip(order, args, strict=False)), **kwargs}
        return function(*args, **{_RENAMED.get(name, name): value for name, value in kwargs.items()})

    return called


concat = _axis_first(v1.concat, ["axis", "values", "name"])
split = _axis_first(v1.split, ["axis", "num_or_size_splits", "value", "name"])


def batch_matmul(x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, name: str | None = None) -> Any:
    """Multiply matrices."""
    return tf.matmul(x, y, adjoint_a=adj_x, adjoint_b=adj_y, name=name)


NAMES = {
    "batch_cholesky": tf.linalg.cholesky,
    "batch_matmul": batch_matmul,
    "batch_matrix_determinant": tf.linalg.det,
    "batch_matrix_diag": v1.matrix_diag,
    "batch_matrix_diag_part": v1.matrix_diag_part,
    "batch_matrix_inverse": tf.linalg.inv,
    "batch_matrix_solve": tf.linalg.solve,
    "batch_matrix_transpose": v1.matrix_transpose,
    "batch_matrix_triangular_solve": tf.linalg.triangular_solve,
    "batch_svd": tf.linalg.svd,
    "complex_abs": tf.abs,
    "concat": concat,
    "concat_v2": concat,
    "initialize_all_tables": v1.tables_initializer,
    "inv": tf.math.reciprocal,
    "listdiff": v1.setdiff1d,
    "mul": tf.multiply,
    "neg": tf.negative,
    "pack": tf.stack,
    "select": v1.where,
    "split": split,
    "sub": tf.subtract,
    "unpack": tf.unstack,
    **{name: getattr(deprecated, name) for name in deprecated.__all__},
}
"""What each name of the module `tf` is today."""
