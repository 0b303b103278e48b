"""A log of the input and output shapes of layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.tower import get_current_tower_context
from tpk_tensorpack.utils import logger

_is_on = True


def disable_layer_logging() -> None:
    """Disable the log of layers from now on."""
    global _is_on
    _is_on = False


def log_shapes(name: str, kind: str, inputs: Any, outputs: Any) -> None:
    """Log the shapes of a layer; within towers, only for the first training tower.

    Args:
        name: the name of the layer.
        kind: the name of its function.
        inputs: a tensor, or a list of them.
        outputs: a tensor, or a list of them.
    """
    context = get_current_tower_context()
    if _is_on and (context is None or context.is_main_training_tower):
        logger.info("%s (%s): %s --> %s", name, kind, shape_str(inputs), shape_str(outputs))


def shape_str(tensors: Any) -> str:
    """Format the shape of a tensor, or of each tensor in a list."""
    if isinstance(tensors, (list, tuple)):
        return ", ".join(map(shape_str, tensors))
    if not tf.is_tensor(tensors) and not isinstance(tensors, tf.Variable):
        return type(tensors).__name__
    return str(tensors.shape.as_list()) if tensors.shape.rank is not None else "unknown"
