"""A dataflow as a `tf.data.Dataset`."""

from __future__ import annotations

import threading
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


class StreamElements:
    """The elements of a stream, for a `tf.data.Dataset` in a graph.

    The threads of `tf.data` may take elements ahead of the steps, and go on doing so when the steps have ended; `halt`
    keeps them from that.

    Args:
        stream: which is rewound before each iteration.

    Attributes:
        failure: what the data raised in this iteration. Raised in the dataset, it would reach the step as text, and
            TensorFlow would print it; so the iteration ends instead.
    """

    def __init__(self, stream: DatapointStream) -> None:
        self.failure: Exception | None = None
        self._stream = stream
        self._iteration = 0
        self._taking = threading.Lock()

    def __call__(self) -> Iterator[tuple[Any, ...]]:
        """Begin an iteration."""
        iteration, starts = self._iteration, True
        while True:
            with self._taking:
                if iteration != self._iteration:
                    return
                try:
                    if starts:
                        self._stream.start()
                        starts = False
                    arrays = next(self._stream, None)
                except Exception as error:
                    self.failure = error
                    return
            if arrays is None:
                return
            yield tuple(arrays)

    def halt(self, timeout: float) -> bool:
        """Let nothing more be taken in this iteration, and wait for what is being taken.

        Args:
            timeout: seconds to wait.

        Returns:
            Whether nothing is being taken any more.
        """
        self._iteration += 1
        self.failure = None
        is_over = self._taking.acquire(timeout=timeout)
        if is_over:
            self._taking.release()
        return is_over


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
