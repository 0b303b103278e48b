"""Packs of tensors: several small ones travel as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def plan_packs(tensors: Sequence[Any], pack_bytes: int) -> list[list[int]]:
    """Return which tensors travel together, by their positions: of one dtype, up to `pack_bytes` in sum.

    Args:
        tensors: what travels, in the order in which it becomes available.
        pack_bytes: the size in bytes; a tensor that is larger, or whose shape is not known, travels alone.
    """
    packs: list[list[int]] = []
    open_packs: dict[Any, tuple[list[int], float]] = {}
    for position, tensor in enumerate(tensors):
        count = tensor.shape.num_elements()
        size = math.inf if count is None else count * tensor.dtype.size
        pack, room = open_packs.get(tensor.dtype, (None, 0.0))
        if pack is not None and size <= room:
            pack.append(position)
            open_packs[tensor.dtype] = (pack, room - size)
        else:
            packs.append([position])
            if size < pack_bytes:
                open_packs[tensor.dtype] = (packs[-1], pack_bytes - size)
    return packs


def pack(tensors: Sequence[Any]) -> Any:
    """Return the elements of tensors of one dtype in a vector, on the device of the context; a single one as it is."""
    if len(tensors) == 1:
        return tensors[0]
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


def unpack(packed: Any, likes: Sequence[Any]) -> list[Any]:
    """Return the tensors in a pack, which have the shapes of `likes`, on the device of the context."""
    if len(likes) == 1:
        return [packed]
    parts = tf.split(packed, [like.shape.num_elements() for like in likes])
    return [tf.reshape(part, like.shape) for part, like in zip(parts, likes, strict=True)]
