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
        return ", ".join(get_shape_str(each) for each in tensors)
    return str(tensors.shape.as_list() if tensors.shape.rank is not None else None)
