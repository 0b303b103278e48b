"""`tf.get_variable` with the shapes that TensorFlow 1 accepted."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf


@functools.wraps(tf.compat.v1.get_variable)
def get_variable(name: str, shape: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Return an existing variable or create a new one; see `tf.compat.v1.get_variable`.

    Args:
        name: the name of the variable.
        shape: the shape; sizes can be floats such as ``128 / 2`` if they are whole numbers.
        args: as for `tf.compat.v1.get_variable`.
        kwargs: likewise.
    """
    if isinstance(shape, list | tuple):
        shape = [int(size) if isinstance(size, float) and size.is_integer() else size for size in shape]
    return tf.compat.v1.get_variable(name, shape, *args, **kwargs)
