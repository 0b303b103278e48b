"""Batches that the graph makes of single datapoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpk.checks import check_at_least
from tpk.dataflow.base import flow_length
from tpk.errors import ConfigError, InputError
from tpk.input_source.queue import QueueInput

_BATCHES_AHEAD = 5


class BatchQueueInput(QueueInput):
    """Fills a queue with single datapoints, and takes a batch of them at once: the graph does the batching.

    The signature is that of a batch: its first dimension is the batch size or unknown, the others are known. Where
    it is unknown for all inputs, the last batch of a finite flow is smaller than the others if the flow's length is
    no multiple of the batch size. Otherwise what does not make a whole batch is not used.

    Everything else is as with `QueueInput`. Where the flow can deliver batches itself,
    as `BatchData` does, a `QueueInput` of those costs less for each datapoint.

    Args:
        flow: any iterable of single datapoints: lists or tuples by position, or dicts by name.
        batch_size: how many datapoints a tower takes.
        queue: a `tf.queue.QueueBase` with the dtypes and shapes of one datapoint, made in the trainer's graph; by
            default a FIFO queue is made.
        queue_size: how many single datapoints the queue that is made by default holds; by default five batches.
        infinite: as for `QueueInput`.
        stop_timeout: as for `QueueInput`.
        warn_after: as for `QueueInput`.

    Raises:
        ConfigError: `batch_size` is less than 1, or more than `queue_size`.
        InputError: (at `setup`) the signature or the queue does not fit.

    Example:
        ```python
        source = BatchQueueInput(DataFromList(images_and_labels, shuffle=True), 32)
        ```
    """

    def __init__(
        self,
        flow: Iterable[Any],
        batch_size: int,
        queue: Any = None,
        queue_size: int | None = None,
        infinite: bool = True,
        stop_timeout: float = 10.0,
        warn_after: float = 60.0,
    ) -> None:
        check_at_least(self, 1, batch_size=batch_size)
        queue_size = _BATCHES_AHEAD * batch_size if queue_size is None else queue_size
        super().__init__(flow, queue, queue_size, infinite, stop_timeout, warn_after)
        if queue is None and queue_size < batch_size:
            raise ConfigError(f"BatchQueueInput: a queue of {queue_size} never holds a batch of {batch_size}")
        self.batch_size = batch_size
        self._per_take = batch_size

    def keep_first(self, count: int) -> None:
        """Keep the datapoints of so many batches."""
        super().keep_first(count * self.batch_size)

    @property
    def size(self) -> int | None:
        """How many batches a pass over the flow makes, if its length is known; one that spans two passes is not one."""
        length = flow_length(self.flow)
        if length is None:
            return None
        last = length % self.batch_size > 0 and not self._stream.infinite and self._takes_less_at_the_end
        return length // self.batch_size + last

    @property
    def _takes_less_at_the_end(self) -> bool:
        return all(tf.compat.dimension_value(spec.shape[0]) is None for spec in self.signature)

    def _element_specs(self) -> Sequence[Any]:
        for spec in self.signature:
            size = tf.compat.dimension_value(spec.shape[0]) if spec.shape.rank else 0
            if size not in (None, self.batch_size):
                raise InputError(
                    f"BatchQueueInput: the input {spec.name!r} of shape {spec.shape} is no batch of {self.batch_size}; "
                    f"its first dimension must be {self.batch_size} or None"
                )
            if not spec.shape[1:].is_fully_defined():
                raise InputError(
                    f"BatchQueueInput: datapoints of {spec.name!r} may differ in shape, {spec.shape[1:]}, so they make "
                    "no batch; give a known shape, or batch them in the flow and use QueueInput"
                )
        return [tf.TensorSpec(spec.shape[1:], spec.dtype, spec.name) for spec in self.signature]

    def _make_queue(self, dtypes: list[Any]) -> Any:
        shapes = [spec.shape for spec in self._element_specs()]
        return tf.queue.FIFOQueue(self._queue_size, dtypes, shapes, name="queue")

    def _check_queue(self, dtypes: list[Any]) -> None:
        super()._check_queue(dtypes)
        expected = [spec.shape.as_list() for spec in self._element_specs()]
        if [shape.as_list() if shape.rank is not None else None for shape in self.queue.shapes] != expected:
            raise InputError(
                f"BatchQueueInput: the queue must have the shapes of one datapoint, {expected}, but it has "
                f"{self.queue.shapes}"
            )

    def _take(self) -> Any:
        if self._takes_less_at_the_end:
            return self.queue.dequeue_up_to(self.batch_size, name="dequeue")
        return self.queue.dequeue_many(self.batch_size, name="dequeue")
