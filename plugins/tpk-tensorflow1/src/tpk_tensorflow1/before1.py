"""Names of TensorFlow before 1.0, with the arguments of their time."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.contrib import deprecated

v1 = tf.compat.v1


def concat(values: Any = None, axis: Any = None, name: str = "concat", concat_dim: Any = None) -> Any:
    """Concatenate tensors; the axis may also come first."""
    axis = axis if concat_dim is None else concat_dim
    if isinstance(values, Integral):
        values, axis = axis, values
    return v1.concat(values, axis, name)


def split(
    value: Any = None,
    num_or_size_splits: Any = None,
    axis: Any = 0,
    num: int | None = None,
    name: str = "split",
    split_dim: Any = None,
    num_split: Any = None,
) -> Any:
    """Split a tensor; the arguments may also be the axis, the number of parts and the tensor."""
    axis = axis if split_dim is None else split_dim
    if isinstance(value, Integral):
        value, axis = axis, value
    return v1.split(value, num_or_size_splits if num_split is None else num_split, axis, num, name)


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
