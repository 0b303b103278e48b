"""Summaries of tensors: moving averages of scalars, distributions and norms of parameters and activations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk import graph
from tpk.graph import MOVING_SUMMARY_OPS_KEY
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
    if not _is_another_tower():
        graph.add_tensor_summary(x, types, name or x.op.name, collections)


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
    if not _is_another_tower():
        kinds = ("sparsity", "rms", "histogram") if types is None else types
        graph.add_activation_summary(x, kinds, name or x.op.name, collections)


def add_param_summary(*summary_lists: tuple[str, Sequence[str]], **kwargs: Any) -> None:
    """Summarize the trainable variables with matching names, as ``param-summary/<name>-<type>``, in the main tower.

    Args:
        summary_lists: pairs of a regular expression that matches whole names, and types as for `add_tensor_summary`.
        kwargs: ``collections``: the collections to add the summaries to.

    Example:
        ```python
        add_param_summary((".*/W", ["histogram", "rms"]), (".*/gamma", ["scalar"]))
        ```
    """
    collections = kwargs.pop("collections", None)
    if kwargs:
        raise CheckError(f"add_param_summary takes 'collections', not {', '.join(map(repr, kwargs))}")
    if not _is_another_tower():
        graph.add_param_summary(*summary_lists, collections=collections)


def add_moving_summary(*args: Any, **kwargs: Any) -> list[Any]:
    """Summarize the exponential moving averages of scalars, under the scalars' names, in the main training tower.

    Unlike in `tpk.add_moving_summary`, the averages are local variables, which are not in checkpoints: they
    restart when training is resumed. As there, they are unbiased, and all averages of one call share one update.

    Args:
        args: scalar tensors.
        kwargs: ``decay``: the weight of the past, 0.95 by default. ``collection``: the collection of the update ops;
            with None, run the returned averages instead. ``summary_collections``: the collections to add the summaries
            to.

    Returns:
        The averages; evaluating one runs the update. None in towers without summaries.
    """
    decay = kwargs.pop("decay", 0.95)
    collection = kwargs.pop("collection", MOVING_SUMMARY_OPS_KEY)
    summary_keys = kwargs.pop("summary_collections", None) or [tf.compat.v1.GraphKeys.SUMMARIES]
    if kwargs:
        raise CheckError(
            f"add_moving_summary takes decay, collection and summary_collections, not {', '.join(map(repr, kwargs))}"
        )
    tensors = [each for given in args for each in (given if isinstance(given, (list, tuple)) else [given])]
    for tensor in tensors:
        if tensor.shape.rank not in (0, None):
            raise CheckError(
                f"add_moving_summary takes scalars, but {tensor.name!r} has shape {tensor.shape}. Take its mean, "
                "e.g. with tf.reduce_mean(x, name=...)"
            )
    if not tensors or _is_another_tower():
        return []
    if tf.compat.v1.get_variable_scope().reuse is True:
        logger.warning("add_moving_summary() in a scope that reuses variables is ignored.")
        return []
    return _averages(tensors, decay, collection, summary_keys)


def _averages(tensors: Sequence[Any], decay: float, collection: str | None, summary_keys: Sequence[str]) -> list[Any]:
    graph = tf.compat.v1.get_default_graph()
    names = [_without_tower(tensor.op.name) for tensor in tensors]
    with tf.compat.v1.name_scope(None):
        tags = [graph.unique_name(f"{name}-summary") for name in names]
        with tf.compat.v1.name_scope("EMA/" + ".".join(names)):
            # The last element, the moving sum of 1, is the total weight of all values so far.
            values = tf.stack([*(tf.cast(tensor, tf.float32) for tensor in tensors), 1.0])
            sums = tf.compat.v1.Variable(
                np.zeros(len(tensors) + 1, np.float32),
                trainable=False,
                use_resource=True,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                name="sums",
            )
            step = (1 - decay) * (values - sums)
            update = tf.raw_ops.AssignAddVariableOp(resource=sums.handle, value=step, name="update")
            with tf.control_dependencies([update]):
                updated = sums.read_value()
            averages = updated[:-1] / updated[-1]
            summary = tf.raw_ops.ScalarSummary(tags=tags, values=averages, name="summary")
            each = tf.unstack(averages, num=len(tensors))
    if collection is not None:
        graph.add_to_collection(collection, update)
    graph.add_to_collections(summary_keys, summary)
    return list(each)


def _without_tower(name: str) -> str:
    return name.removeprefix("tower0/")


def _is_another_tower() -> bool:
    tower = get_current_tower_context()
    return tower is not None and not tower.is_main_training_tower
