"""Summaries of tensors: moving averages of scalars, distributions and norms of parameters and activations.

Only the main training tower has summaries: other towers are built in `without_summaries`, and their additions to the
collections of summaries are removed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.argument_checks import check_one_of
from tpk.errors import ConfigError
from tpk.graph.scopes import check_can_be_collected, graph_records
from tpk.graph.variables import NamePattern

logger = logging.getLogger(__name__)

MOVING_SUMMARY_OPS_KEY = "MOVING_SUMMARY_OPS"
"""The collection of the ops that maintain moving averages; the callback `MovingAverageSummary` runs them."""

_MOVING_SUMMARIES = "moving_summaries"

_MAIN_TOWER = re.compile(r"(?:^|(?<=/))tower0/")
_SUFFIX = re.compile(r"-summary(?=(?:_\d+)?$)")

_suppressed: ContextVar[bool] = ContextVar("tpk_summaries_suppressed", default=False)


@contextmanager
def without_summaries() -> Iterator[None]:
    """Within the context, the functions of this module do nothing.

    Example:
        ```python
        with without_summaries():
            logits = build_network(validation_images)
        ```
    """
    token = _suppressed.set(True)
    try:
        yield
    finally:
        _suppressed.reset(token)


def add_moving_summary(
    *tensors: Any,
    decay: float = 0.95,
    collection: str | None = MOVING_SUMMARY_OPS_KEY,
    summary_collections: Sequence[str] | None = None,
) -> list[Any]:
    """Summarize scalars: their exponential moving averages as ``<name>/EMA``, their epoch means as ``<name>``.

    The means over each epoch are taken by the callback `EpochMeans`, one of the defaults, if `collection` is the
    default one.

    For the moving averages, each step computes ``sum = decay · sum + (1 - decay) · value`` for each tensor, and the
    same for a constant 1, whose moving sum is the total weight. The average is their quotient, so it is unbiased from
    the first step (as in Kingma and Ba, "Adam", 2015, section 3). All tensors of one call share one variable and one
    update, so one call with many tensors is cheaper than many calls. The variable is named after the tensors,
    ``EMA/cost.error``, is not trainable, and is saved in checkpoints.

    Args:
        tensors: scalar tensors or variables of any real dtype.
        decay: the weight of the past, in [0, 1).
        collection: the collection to add the update op to. With None, run the returned averages in each step
            yourself.
        summary_collections: the collections to add the summary to; `GraphKeys.SUMMARIES` by default.

    Returns:
        The averages, in the order of `tensors`: ``float32`` scalars; evaluating one runs the update. An empty list in
        `without_summaries` and in a reusing variable scope.

    Raises:
        ConfigError: if a tensor is not a scalar, or `decay` is out of range; and inside a `tf.cond`, a
            `tf.while_loop` or a `tf.function`.

    Example:
        ```python
        cost = tf.reduce_mean(losses, name="cost")
        error = tf.reduce_mean(tf.cast(wrong, tf.float32), name="train-error")
        add_moving_summary(cost, error)
        ```
    """
    if not 0 <= decay < 1:
        raise ConfigError(f"add_moving_summary: decay must be at least 0 and less than 1, got {decay!r}.")
    for tensor in tensors:
        _check_scalar("add_moving_summary", tensor)
    if not tensors or _suppressed.get():
        return []
    if tf.compat.v1.get_variable_scope().reuse is True:
        logger.debug("add_moving_summary in a variable scope that reuses variables is ignored")
        return []

    names = [_name_of(tensor) for tensor in tensors]
    _check_can_be_summarized("add_moving_summary", ", ".join(names))
    graph = tf.compat.v1.get_default_graph()
    # Outside of all scopes, so that their regularizers, getters and reuse do not apply.
    with tf.compat.v1.name_scope(None):
        # Tags must differ within a merged summary; the suffix keeps them apart from the user's own.
        tags = [graph.unique_name(f"{name}/EMA-summary") for name in names]
        with tf.compat.v1.name_scope("EMA/" + ".".join(names)):
            is_exact = all(np.can_cast(tensor.dtype.as_numpy_dtype, np.float32) for tensor in tensors)
            dtype = tf.float32 if is_exact else tf.float64
            values = tf.stack([*(tf.cast(tensor, dtype) for tensor in tensors), tf.constant(1, dtype)], name="values")
            update, averages = maintain_averages(_float(values), decay)
            summary = tf.raw_ops.ScalarSummary(tags=tags, values=averages, name="summary")
            each = tf.unstack(averages, num=len(tensors), name="average_of")
    if collection is not None:
        graph.add_to_collection(collection, update)
    if collection == MOVING_SUMMARY_OPS_KEY:
        graph_records(graph, _MOVING_SUMMARIES).append((names, values))
    summary_keys = [tf.compat.v1.GraphKeys.SUMMARIES] if summary_collections is None else summary_collections
    graph.add_to_collections(summary_keys, summary)
    return list(each)


def add_tensor_summary(
    tensor: Any,
    types: Iterable[str],
    name: str | None = None,
    collections: Sequence[str] | None = None,
) -> None:
    """Summarize a tensor in the given ways.

    Args:
        tensor: a tensor or variable.
        types: some of ``"scalar"`` (itself), ``"histogram"``, ``"sparsity"`` (fraction of zeros), ``"mean"``,
            and ``"rms"`` (root of the mean square).
        name: the name of the summary; by default the name of the tensor.
        collections: the collections to add the summaries to; `GraphKeys.SUMMARIES` by default.

    Raises:
        ConfigError: if a type is unknown, or the type is ``"scalar"`` and the tensor is not a scalar; and inside a
            `tf.cond`, a `tf.while_loop` or a `tf.function`.
    """
    wanted = list(dict.fromkeys(types))
    for kind in wanted:
        check_one_of("add_tensor_summary", _SUMMARY_TYPES, type=kind)
    if "scalar" in wanted:
        _check_scalar("add_tensor_summary with the type 'scalar'", tensor)
    if _suppressed.get():
        return
    base = _name_of(tensor) if name is None else name
    _check_can_be_summarized("add_tensor_summary", base)
    for kind in wanted:
        summarize = tf.compat.v1.summary.histogram if kind == "histogram" else tf.compat.v1.summary.scalar
        suffix = "summary" if kind == "scalar" else kind
        summarize(f"{base}-{suffix}", _SUMMARY_TYPES[kind](tensor), collections=collections)


def add_activation_summary(
    tensor: Any,
    types: Iterable[str] = ("sparsity", "rms", "histogram"),
    name: str | None = None,
    collections: Sequence[str] | None = None,
) -> None:
    """Summarize the activations of a layer, as ``activation-summary/<name>-<type>``.

    Args:
        tensor: the activations; a scalar is ignored, with a warning.
        types: see `add_tensor_summary`.
        name: the name of the summary; by default the name of the tensor.
        collections: the collections to add the summaries to; `GraphKeys.SUMMARIES` by default.
    """
    if tensor.shape.rank == 0:
        logger.warning("add_activation_summary: %s is a scalar, no activations; ignored", tensor.name)
        return
    with tf.compat.v1.name_scope("activation-summary/"):
        add_tensor_summary(tensor, types, name=name, collections=collections)


def add_param_summary(*summary_lists: tuple[str, Sequence[str]], collections: Sequence[str] | None = None) -> None:
    """Summarize all trainable variables whose names match, as ``param-summary/<name>-<type>``.

    Args:
        summary_lists: pairs: a regular expression that matches whole names of variables, and a list of types
            as in `add_tensor_summary`.
        collections: the collections to add the summaries to; `GraphKeys.SUMMARIES` by default.

    Raises:
        ConfigError: if a regular expression is invalid.

    Example:
        ```python
        add_param_summary((".*/kernel", ["histogram", "rms"]), (".*/gamma", ["histogram"]))
        ```
    """
    for pattern, types in summary_lists:
        matching = filter(NamePattern(pattern, "add_param_summary").matches, tf.compat.v1.trainable_variables())
        with tf.compat.v1.name_scope("param-summary/"):
            for variable in matching:
                add_tensor_summary(variable, types, collections=collections)


def moving_summaries(graph: Any) -> list[tuple[list[str], Any]]:
    """Return the moving summaries in `graph` that were added to the default collection.

    Returns:
        For each call of `add_moving_summary`, the names, and a vector with the values of a step and a 1:
        ``float64`` if one of the dtypes, such as ``int64``, has values that ``float32`` lacks, otherwise ``float32``.
    """
    return list(graph_records(graph, _MOVING_SUMMARIES))


def reported_name(tag: str) -> str:
    """Return the reported name of a summary with this tag: without ``tower0/`` and a ``-summary`` at the end."""
    return _SUFFIX.sub("", _MAIN_TOWER.sub("", tag))


def names_of_scalar_summaries(graph: Any) -> set[str]:
    """Return the names under which the summary ops of `graph` report scalars."""
    found: set[str] = set()
    for summary in graph.get_collection(tf.compat.v1.GraphKeys.SUMMARIES):
        op = getattr(summary, "op", None)
        if op is not None and op.type == "ScalarSummary":
            tags = tf.get_static_value(op.inputs[0])
            found.update(reported_name(tag.decode()) for tag in np.ravel([] if tags is None else tags))
    return found


def maintain_averages(values: Any, decay: float, collections: Sequence[str] | None = None) -> tuple[Any, Any]:
    """Return the op that updates the averages of `values`, which end with a 1, and the averages after the update.

    Args:
        values: a ``float32`` vector: the values of a step, and a 1.
        decay: the weight of the past.
        collections: the collections of the variable; by default ``GLOBAL_VARIABLES``.
    """
    # The last element is the moving sum of 1: the weight of all values so far.
    start = np.zeros(values.shape, np.float32)
    sums = tf.compat.v1.Variable(
        start, trainable=False, collections=collections, name="sums_and_weight", use_resource=True
    )
    update = tf.raw_ops.AssignAddVariableOp(resource=sums.handle, value=(1 - decay) * (values - sums), name="update")
    with tf.control_dependencies([update]):
        updated = sums.read_value()
    averages = tf.divide(updated[:-1], updated[-1], name="averages")
    return update, averages


def _name_of(tensor: Any) -> str:
    """Return the name of `tensor` without the scope of the main tower."""
    return _MAIN_TOWER.sub("", tensor.op.name)


def _check_scalar(function: str, tensor: Any) -> None:
    if not tf.is_tensor(tensor) or not hasattr(tensor, "op"):
        raise ConfigError(f"{function} takes tensors of a graph, got {tensor!r}.")
    if tensor.shape.rank != 0:
        raise ConfigError(
            f"{function} takes scalars, but {tensor.name!r} has the shape {tensor.shape}. Reduce it, e.g. by "
            "tf.reduce_mean(x, name=...)."
        )


def _check_can_be_summarized(function: str, names: str) -> None:
    remedy = "Return the tensor from there, and summarize it outside."
    check_can_be_collected(f"{function}: the summary of {names}", remedy)


def _float(tensor: Any) -> Any:
    return tf.cast(tensor, tf.float32)


_SUMMARY_TYPES: dict[str, Callable[[Any], Any]] = {
    "scalar": lambda x: x,
    "histogram": lambda x: x,
    "sparsity": tf.nn.zero_fraction,
    "mean": lambda x: tf.reduce_mean(_float(x)),
    "rms": lambda x: tf.sqrt(tf.reduce_mean(tf.square(_float(x)))),
}
