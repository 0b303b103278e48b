"""Queues on parameter servers through which workers apply their gradients together and stay in step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.strategies.all_reduce import reduce_column

Gradients = list[tuple[Any, Any]]
"""Pairs of a gradient and its variable."""


class StepQueues:
    """The queues of an update by all workers together.

    Each worker has a queue on each parameter server, for the gradients of the variables there. The chief takes the
    gradients of all workers, in the order of their ranks, so that sums have the same bits in each run. It applies the
    means or sums, and then puts a token into a queue of each other worker, which waits for it. No worker can be two
    steps ahead, because the chief takes the gradients of all workers, or of none.

    Args:
        name: the name of the update; the same in each worker, and different in each training.
        rank: the number of this worker.
        world_size: the number of workers.
        gradients: the gradients of this worker, each with a variable on a parameter server.
        average: whether the chief computes means instead of sums.
    """

    def __init__(self, name: str, rank: int, world_size: int, gradients: Gradients, average: bool = True) -> None:
        self._name = name
        self._rank = rank
        self._world_size = world_size
        self._gradients = list(gradients)
        self._average = average
        self._positions: dict[str, list[int]] = {}
        for position, (_, variable) in enumerate(self._gradients):
            self._positions.setdefault(variable.device, []).append(position)

    def push(self) -> Any:
        """Return the op that sends the gradients of this worker to the chief."""
        pushes = []
        for server, (device, positions) in enumerate(self._positions.items()):
            components = [part for position in positions for part in _components(self._gradients[position])]
            with tf.device(device):
                pushes.append(self._queue(server, positions, self._rank).enqueue(components))
        return tf.group(*pushes)

    def take_reduced(self) -> Gradients:
        """Return the means or sums over all workers, with their variables; only the chief runs these ops."""
        reduced: list[Any] = [None] * len(self._gradients)
        for server, (device, positions) in enumerate(self._positions.items()):
            with tf.device(device):
                rows = [self._take(server, positions, rank) for rank in range(self._world_size)]
                for position, column in zip(positions, zip(*rows, strict=True), strict=True):
                    reduced[position] = reduce_column(list(column), self._average)
        return [(grad, variable) for grad, (_, variable) in zip(reduced, self._gradients, strict=True)]

    def tell_others(self) -> Any:
        """Return the chief's op that lets the other workers continue."""
        with tf.device(self._first_device):
            return tf.group(*(self._tokens(rank).enqueue(True) for rank in range(1, self._world_size)))

    def wait_for_chief(self) -> Any:
        """Return the op with which the other workers wait until the chief has applied the gradients."""
        with tf.device(self._first_device):
            return self._tokens(self._rank).dequeue().op

    @property
    def _first_device(self) -> str:
        return next(iter(self._positions))

    def _queue(self, server: int, positions: Sequence[int], rank: int) -> Any:
        dtypes = [dtype for position in positions for dtype in _dtypes(self._gradients[position])]
        return _queue(f"{self._name}/gradients{server}/of_rank{rank}", dtypes)

    def _tokens(self, rank: int) -> Any:
        return _queue(f"{self._name}/token/for_rank{rank}", [tf.bool])

    def _take(self, server: int, positions: Sequence[int], rank: int) -> list[Any]:
        taken = self._queue(server, positions, rank).dequeue()
        parts = iter(taken if isinstance(taken, list) else [taken])
        return [_like(self._gradients[position], parts) for position in positions]


def _queue(name: str, dtypes: Sequence[Any]) -> Any:
    # Workers share the queue by its `shared_name`; the name of the op may differ.
    return tf.queue.FIFOQueue(1, dtypes, shared_name=f"tpk/{name}", name=name.replace("/", "_"))


def _components(pair: tuple[Any, Any]) -> list[Any]:
    """Return the tensors to send for a gradient."""
    gradient, _ = pair
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, tf.cast(gradient.indices, tf.int64)]
    return [gradient]


def _dtypes(pair: tuple[Any, Any]) -> list[Any]:
    gradient, _ = pair
    return [gradient.dtype, tf.int64] if isinstance(gradient, tf.IndexedSlices) else [gradient.dtype]


def _like(pair: tuple[Any, Any], parts: Any) -> Any:
    """Return a gradient of the kind in `pair`, made from the tensors that were sent."""
    gradient, variable = pair
    if isinstance(gradient, tf.IndexedSlices):
        values, indices = next(parts), next(parts)
        values.set_shape([None, *variable.shape[1:]])
        indices.set_shape([None])
        return tf.IndexedSlices(values, indices, tf.shape(variable, out_type=tf.int64))
    tensor = next(parts)
    tensor.set_shape(variable.shape)
    return tensor
