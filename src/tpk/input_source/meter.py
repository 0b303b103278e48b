"""Meters of how long steps wait for data."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import tensorflow as tf

from tpk.graph.fetches import FetchDependencies

Waited = TypeVar("Waited")


@attrs.frozen
class InputReading:
    """The measurements since the previous reading.

    Attributes:
        waited: the total time that runs have waited for data, in seconds.
        fill: how many datapoints were ready when a run began, as a mean over the runs; None without a buffer.
        capacity: the capacity of the buffer.
    """

    waited: float
    fill: float | None = None
    capacity: int | None = None


class InputMeter(ABC):
    """Measures how long runs of the session wait for the data of a source."""

    def start(self, session: Any) -> None:  # noqa: B027 - not every meter needs the session
        """Start to measure; called in `before_train`."""

    def op_for(self, fetches: Any) -> Any:
        """Return the op to run along with a run of `fetches`, or None."""
        return None

    @abstractmethod
    def read(self, session: Any) -> InputReading:
        """Return the measurements since the last call, and start again."""


class StopwatchMeter(InputMeter):
    """Adds up how long Python waits.

    Args:
        inside: the meter of the source that fills this one, which provides the fill.
        clock: returns the time in seconds.
    """

    def __init__(self, inside: InputMeter | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._inside = inside
        self._clock = clock
        self._waited = 0.0

    def waiting(self, wait: Callable[[], Waited]) -> Waited:
        """Call `wait`, add the time that it takes, and return its result."""
        began = self._clock()
        result = wait()
        self._waited += self._clock() - began
        return result

    def start(self, session: Any) -> None:
        """Start to measure."""
        self._waited = 0.0
        if self._inside is not None:
            self._inside.start(session)

    def op_for(self, fetches: Any) -> Any:
        """Return the op of the inner meter."""
        return None if self._inside is None else self._inside.op_for(fetches)

    def read(self, session: Any) -> InputReading:
        """Return the total time, and the fill from the inner meter."""
        waited, self._waited = self._waited, 0.0
        if self._inside is None:
            return InputReading(waited)
        return attrs.evolve(self._inside.read(session), waited=waited)


class GraphMeter(InputMeter):
    """Measures in the graph, from the start of a run until the datapoints of its towers have been taken.

    It leaves the ops of the source unchanged, and so every run that does not fetch the meter's op.

    Args:
        take_ops: for each tower, the op that takes its datapoint.
        size: a tensor with the number of datapoints that are ready, or None.
        capacity: the capacity of the buffer.
    """

    def __init__(self, take_ops: Sequence[Any], size: Any = None, capacity: int | None = None) -> None:
        self._dependencies = FetchDependencies(take_ops)
        self._has_size = size is not None
        self._capacity = capacity
        with tf.device("/cpu:0"), tf.name_scope("InputMeter"):
            # Seconds waited, the sum of the sizes, and the number of runs. In no collection: nothing else uses it.
            self._sums = tf.compat.v1.Variable(
                tf.zeros([3], tf.float64), trainable=False, use_resource=True, collections=[], name="sums"
            )
            began = tf.timestamp()
            ready = tf.cast(size, tf.float64) if self._has_size else tf.constant(0.0, tf.float64)
            self._only_size = self._add([0.0, ready, 1.0]) if self._has_size else None
            self._take = [self._add([self._until(op, began), ready, 1.0]) for op in take_ops]
            self._value = self._sums.read_value()

    def start(self, session: Any) -> None:
        """Start to measure."""
        session.run(self._sums.initializer)

    def op_for(self, fetches: Any) -> Any:
        """Return the op that measures the last tower whose datapoint the run takes: it waits for the others."""
        needed = self._dependencies.among(fetches)
        return self._take[needed[-1]] if needed else self._only_size

    def read(self, session: Any) -> InputReading:
        """Return the sums in the graph, and reset them."""
        waited, sizes, runs = session.run(self._value)
        session.run(self._sums.initializer)
        fill = float(sizes / max(runs, 1.0)) if self._has_size else None
        return InputReading(float(waited), fill, self._capacity)

    def _until(self, op: Any, began: Any) -> Any:
        with tf.control_dependencies([began, op]):
            return tf.timestamp() - began

    def _add(self, sums: Sequence[Any]) -> Any:
        return self._sums.assign_add(tf.stack(sums), read_value=False)
