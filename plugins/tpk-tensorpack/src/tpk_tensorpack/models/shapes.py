"""Shapes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_tensorpack.models.registry import layer_register

__all__ = ["ConcatWith"]


@layer_register(use_scope=None)
def ConcatWith(x: Any, tensor: Any, dim: int) -> Any:
    """Concatenate a tensor with others; as a layer, so that `LinearWrap` supports it.

    Args:
        x: the first tensor.
        tensor: another tensor, or a list of them.
        dim: the dimension to concatenate along.
    """
    return tf.concat([x, *(tensor if isinstance(tensor, (list, tuple)) else [tensor])], dim)
