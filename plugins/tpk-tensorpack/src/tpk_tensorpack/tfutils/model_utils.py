"""Descriptions of models."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.graph import model_overview
from tpk_tensorpack.utils import logger

__all__: list[str] = []


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
