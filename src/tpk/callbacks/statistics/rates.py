"""The speed of a training run, and how long its steps wait for data."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_positive, given
from tpk.errors import ConfigError
from tpk.graph.fetches import FetchDependencies
from tpk.input_source.meter import InputMeter
from tpk.plugin import Callback, hookimpl
from tpk.plugin.creation import also_spelled

logger = logging.getLogger(__name__)


@also_spelled({"samples_per_step": "examples_per_step"})
class ThroughputTracker(Callback):
    """Reports the speed of each epoch: ``steps_per_second`` and ``examples_per_second``.

    Only the time of the steps counts, not the time between two epochs. The examples of a step are the batches of all
    towers of all processes, one batch for each run of the step that takes the inputs. The batch size is the first
    dimension of the inputs of the main tower in the first such run of the epoch; if the inputs differ in it,
    ``examples_per_second`` is not reported.

    Args:
        examples_per_step: the number of examples in a step of all towers and processes; by default the batch size is
            used.
        clock: returns the time in seconds.

    Raises:
        ConfigError: if `examples_per_step` is not positive.

    Example:
        ```python
        ThroughputTracker(examples_per_step=8 * 1024)  # Tokens, say.
        ```
    """

    def __init__(
        self, examples_per_step: float | None = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        check_positive(self, **given(examples_per_step=examples_per_step))
        self._given = examples_per_step
        self._clock = clock
        self._sizes: list[Any] = []
        self._inputs = FetchDependencies([])
        self._fetches: Any = None
        self._takes_inputs = False
        # The examples in a batch of all towers and processes; None if it is unknown. The batches of the epoch.
        self._examples: int | None = None
        self._batches = 0
        self._is_due = False
        self._last_step = 0
        self._began = 0.0

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the sizes of the inputs."""
        main_tower = trainer.towers.main
        if self._given is None and main_tower is not None:
            batched = [tensor for tensor in main_tower.inputs if tensor.shape.rank != 0]
            self._inputs = FetchDependencies([tensor.op for tensor in batched])
            with tf.name_scope("throughput/"):
                self._sizes = [tf.shape(tensor, out_type=tf.int64)[:1] for tensor in batched]

    @hookimpl(trylast=True)  # With `after_epoch` first, the time of other callbacks does not count.
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Start the clock."""
        self._is_due, self._batches = True, 0
        self._last_step = trainer.local_step
        self._began = self._clock()

    def before_run(self, run_context: Any) -> Any:
        """Count the runs that take all inputs anyway; in the first one, return the sizes of the inputs."""
        fetches = run_context.original_args.fetches
        if fetches is not self._fetches:  # Most trainings fetch the same object in each step.
            self._fetches = fetches
            self._takes_inputs = len(self._inputs.among(fetches)) == len(self._sizes) > 0
        if not self._takes_inputs:
            return None
        self._batches += run_context.steps
        return self._sizes if self._is_due else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Store the number of examples in a batch, if all inputs agree."""
        if run_values.results is None:
            return
        self._is_due = False
        found = {int(size[0]) for size in run_values.results if len(size)}
        strategy = self.trainer.strategy
        self._examples = found.pop() * strategy.num_replicas * strategy.world_size if len(found) == 1 else None

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Report the speed."""
        seconds, steps = self._clock() - self._began, trainer.local_step - self._last_step
        if seconds <= 0 or steps <= 0:
            return
        trainer.monitors.put_scalar("steps_per_second", steps / seconds)
        examples = steps * self._given if self._given else self._batches * (self._examples or 0)
        if examples:
            trainer.monitors.put_scalar("examples_per_second", examples / seconds)


class InputMonitor(Callback):
    """Reports at the end of each epoch how long its steps waited for data, and how much data was ready.

    The scalars:

    - ``input/wait_seconds``: the mean time that a step waited for its data.
    - ``input/wait_share``: the same as a fraction of the time of the steps, from 0 to 1. Near 0 the data is fast
      enough; otherwise a faster model would not train faster.
    - ``input/queue_fill``: the mean number of datapoints that were ready when a step began, if the input has a queue.
      ``input/queue_fill_share``: the same as a fraction of the capacity of the queue.

    For a `FeedInput`, the time in the data code counts as waiting. For other sources it is the time from the start of
    the run until it has the datapoints of all towers, measured by a few ops that run along with the step. It includes
    the few microseconds that it takes to dequeue a datapoint that is ready.

    Args:
        clock: returns the time in seconds.

    Raises:
        ConfigError: when the graph is set up, if the trainer has no input source.

    Example:
        ```python
        trainer.train_with_defaults(callbacks=["InputMonitor"], steps_per_epoch=100, max_epoch=10)
        ```
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._meter: InputMeter | None = None
        self._last_step = 0
        self._began = 0.0
        self._seconds = 0.0

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Add the ops that measure to the graph."""
        source = trainer.input_source
        if source is None:
            raise ConfigError(
                f"InputMonitor measures a trainer's input source, but {type(trainer).__name__} has none. Leave it out, "
                "or use a trainer whose setup_graph takes one"
            )
        self._meter = source.make_meter()
        if self._meter is None:
            logger.info("InputMonitor: steps never wait for a %s, so nothing is reported", type(source).__name__)

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Start to measure."""
        if self._meter is not None:
            self._meter.start(trainer.sess)

    @hookimpl(trylast=True)  # With `after_epoch` first, the time of other callbacks does not count.
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Start the clock."""
        self._last_step = trainer.local_step
        self._began = self._clock()

    def before_run(self, run_context: Any) -> Any:
        """Return the op that measures."""
        return None if self._meter is None else self._meter.op_for(run_context.original_args.fetches)

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Stop the clock."""
        self._seconds = self._clock() - self._began

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Report the scalars."""
        steps = trainer.local_step - self._last_step
        if self._meter is None or not steps:
            return
        reading = self._meter.read(trainer.sess)
        scalars = {
            "wait_seconds": reading.waited / steps,
            "wait_share": min(reading.waited / self._seconds, 1.0) if self._seconds > 0 else 0.0,
        }
        if reading.fill is not None:
            scalars["queue_fill"] = reading.fill
            if reading.capacity is not None and reading.capacity > 0:
                scalars["queue_fill_share"] = reading.fill / reading.capacity
        for name, value in scalars.items():
            trainer.monitors.put_scalar(f"input/{name}", value)
