"""Summaries of tensors: moving averages of scalars, distributions and norms of parameters and activations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tpk.graph
from tpk.graph import MOVING_SUMMARY_OPS_KEY, add_param_summary, maintain_averages
from tpk.monitors import image_summary
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.tfutils.tower import get_current_tower_context
from tpk_tensorpack.utils import logger

__all__ = [
    "MOVING_SUMMARY_OPS_KEY",
    "add_activation_summary",
    "add_moving_summary",
    "add_param_summary",
    "add_tensor_summary",
    "create_image_summary",
    "create_scalar_summary",
]


def create_scalar_summary(name: str, v: float) -> Any:
    """Return a `tf.compat.v1.Summary` of a scalar."""
    return tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(tag=name, simple_value=float(v))])


def create_image_summary(name: str, val: Any) -> Any:
    """Return a `tf.compat.v1.Summary` of images in OpenCV's format.

    Args:
        name: the name of the images.
        val: an array of shape (number, height, width, channels), with values from 0 to 255; three channels are in BGR
            order.
    """
    images = np.asarray(val)
    if images.ndim != 4:
        raise ValueError(f"create_image_summary: expected images of four dimensions, got shape {images.shape}")
    if images.shape[-1] == 3:
        images = images[..., ::-1]
    return image_summary(name, np.clip(images, 0, 255).astype(np.uint8))


def add_tensor_summary(
    x: Any,
    types: Iterable[str],
    name: str | None = None,
    collections: Sequence[str] | None = None,
    main_tower_only: bool = True,
) -> None:
    """Summarize a tensor.

    Args:
        x: the tensor.
        types: some of ``"scalar"``, ``"histogram"``, ``"sparsity"``, ``"mean"`` and ``"rms"``.
        name: the name of the summary; by default the tensor's name.
        collections: the collections to add the summaries to; by default ``SUMMARIES``.
        main_tower_only: ignored: only the main training tower has summaries.
    """
    tpk.graph.add_tensor_summary(x, types, name or x.op.name, collections)


def add_activation_summary(
    x: Any, types: Iterable[str] | None = None, name: str | None = None, collections: Sequence[str] | None = None
) -> None:
    """Summarize activations, as ``activation-summary/<name>-<type>``, in the main training tower.

    Args:
        x: the activations.
        types: as for `add_tensor_summary`; by default ``["sparsity", "rms", "histogram"]``.
        name: the name of the summaries; by default the tensor's name.
        collections: the collections to add the summaries to.
    """
    kinds = ("sparsity", "rms", "histogram") if types is None else types
    tpk.graph.add_activation_summary(x, kinds, name or x.op.name, collections)


def add_moving_summary(
    *args: Any,
    decay: float = 0.95,
    collection: str | None = MOVING_SUMMARY_OPS_KEY,
    summary_collections: Sequence[str] | None = None,
) -> list[Any]:
    """Summarize the exponential moving averages of scalars, under the scalars' names, in the main training tower.

    Unlike in `tpk.add_moving_summary`, the averages are local variables, which are not in checkpoints: they
    restart when training is resumed. As there, they are unbiased, and all averages of one call share one update.

    Args:
        args: scalar tensors.
        decay: the weight of the past.
        collection: the collection of the update ops; with None, run the returned averages instead.
        summary_collections: the collections to add the summaries to; by default ``SUMMARIES``.

    Returns:
        The averages; evaluating one runs the update. None in towers without summaries.
    """
    tensors = tf.nest.flatten(args)
    for tensor in tensors:
        if tensor.shape.rank not in (0, None):
            raise CheckError(
                f"add_moving_summary takes scalars, but {tensor.name!r} has shape {tensor.shape}. Take its mean, "
                "e.g. with tf.reduce_mean(x, name=...)"
            )
    context = get_current_tower_context()
    if not tensors or (context is not None and not context.is_main_training_tower):
        return []
    if tf.compat.v1.get_variable_scope().reuse is True:
        logger.warning("add_moving_summary() in a scope that reuses variables is ignored.")
        return []
    graph = tf.compat.v1.get_default_graph()
    names = [tensor.op.name.removeprefix("tower0/") for tensor in tensors]
    with tf.compat.v1.name_scope(None):
        tags = [graph.unique_name(f"{name}-summary") for name in names]
        with tf.compat.v1.name_scope("EMA/" + ".".join(names)):
            values = tf.stack([*(tf.cast(tensor, tf.float32) for tensor in tensors), 1.0])
            update, averages = maintain_averages(values, decay, [tf.compat.v1.GraphKeys.LOCAL_VARIABLES])
            summary = tf.raw_ops.ScalarSummary(tags=tags, values=averages, name="summary")
            each = tf.unstack(averages, num=len(tensors))
    if collection is not None:
        graph.add_to_collection(collection, update)
    graph.add_to_collections(summary_collections or [tf.compat.v1.GraphKeys.SUMMARIES], summary)
    return list(each)
