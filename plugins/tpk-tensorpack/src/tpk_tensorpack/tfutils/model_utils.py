"""Descriptions of models and their layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.graph import model_overview
from tpk.tower import get_current_tower_context
from tpk_tensorpack.utils import logger

__all__: list[str] = []

_logs_layers = True


def describe_trainable_vars() -> None:
    """Log a table of the trainable variables of the default graph, with shapes and sizes."""
    graph = tf.compat.v1.get_default_graph()
    if not graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES):
        logger.warning("the graph has no trainable variables")
        return
    logger.info("the variables of the model:\n%s", model_overview(graph))


def get_shape_str(tensors: Any) -> str:
    """Format the shape of a tensor, or of several tensors."""
    if isinstance(tensors, list | tuple):
        return ", ".join(map(get_shape_str, tensors))
    if not hasattr(tensors, "shape"):
        return type(tensors).__name__
    shape = tf.TensorShape(tensors.shape)
    return str(None if shape.rank is None else shape.as_list())


def disable_layer_logging() -> None:
    """Disable the log of layers from now on."""
    global _logs_layers
    _logs_layers = False


def log_shapes(name: str, kind: str, inputs: Any, outputs: Any) -> None:
    """Log the shapes of a layer; within towers, only for the first training tower.

    Args:
        name: the name of the layer.
        kind: the name of its function.
        inputs: a tensor, or a list of them.
        outputs: a tensor, or a list of them.
    """
    context = get_current_tower_context()
    if _logs_layers and (context is None or context.is_main_training_tower):
        logger.info("%s (%s): %s --> %s", name, kind, get_shape_str(inputs), get_shape_str(outputs))
