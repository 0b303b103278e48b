"""A dataflow as a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.input_source.stream import DatapointStream


def dataflow_to_dataset(flow: Iterable[Any], signature: Sequence[Any]) -> Any:
    """Return a `tf.data.Dataset` of a dataflow's datapoints; one iteration over it is one pass over the flow.

    It belongs to the default graph, or, outside of graphs, to eager mode. Python makes the datapoints, so
    `prefetch` helps; parallel `map` does what comes after.

    Args:
        flow: any iterable of datapoints: lists or tuples by position, or dicts by name. One iteration at a time.
        signature: for each component a `tf.TensorSpec`, or only its dtype if its shape is unknown.

    Returns:
        A dataset whose elements are tuples of tensors, in the order of the signature.

    Raises:
        ConfigError: `flow` cannot be iterated, or `signature` is empty or holds something else.

    Example:
        ```python
        dataset = dataflow_to_dataset(flow, [tf.TensorSpec([28, 28], tf.float32), tf.int32])
        dataset = dataset.batch(32).prefetch(2)
        ```
    """
    specs = tuple(_as_spec(each, position) for position, each in enumerate(signature))
    if not specs:
        raise ConfigError("dataflow_to_dataset needs a tf.TensorSpec or dtype for each component, not none at all")
    stream = DatapointStream(flow, infinite=False, owner="dataflow_to_dataset")
    stream.bind(specs)

    def datapoints() -> Iterator[tuple[Any, ...]]:
        stream.rewind()
        stream.start()
        for arrays in stream:
            yield tuple(arrays)

    return dataset_of(datapoints, specs)


def dataset_of(datapoints: Callable[[], Iterator[tuple[Any, ...]]], specs: Sequence[Any]) -> Any:
    """Return the dataset of what a function delivers.

    Args:
        datapoints: called for each iteration; returns an iterator over tuples of arrays.
        specs: a `tf.TensorSpec` for each.
    """
    signature = tuple(tf.TensorSpec(spec.shape, spec.dtype) for spec in specs)
    return tf.data.Dataset.from_generator(datapoints, output_signature=signature)


def _as_spec(value: Any, position: int) -> Any:
    if isinstance(value, tf.TensorSpec):
        return value if value.name else tf.TensorSpec(value.shape, value.dtype, f"component_{position}")
    try:
        return tf.TensorSpec(None, tf.as_dtype(value), f"component_{position}")
    except TypeError:
        raise ConfigError(
            f"dataflow_to_dataset: component {position} must be given as a tf.TensorSpec or a dtype, not {value!r}"
        ) from None
