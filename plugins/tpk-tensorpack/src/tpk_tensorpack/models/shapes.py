"""Shapes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_tensorpack.models.registry import layer_register

__all__ = ["ConcatWith"]


@layer_register(use_scope=None)
def ConcatWith(x: Any, tensor: Any, dim: int) -> Any:
    """Concatenate a tensor with others; a layer, so that a `LinearWrap` can do so.

    Args:
        x: the first tensor.
        tensor: the others: a tensor, or a list of them.
        dim: the dimension along which they follow each other.
    """
    return tf.concat([x, *(tensor if isinstance(tensor, (list, tuple)) else [tensor])], dim)
