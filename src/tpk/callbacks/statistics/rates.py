"""Throughput of a training: steps and examples per second."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.steps import FetchDependencies
from tpk.plugin import Callback, hookimpl
from tpk.plugin.creation import also_spelled

if TYPE_CHECKING:
    from tpk.input_source.meter import InputMeter
    from tpk.plugin.trainer import TrainerProtocol


@also_spelled({"samples_per_step": "examples_per_step"})
class ThroughputTracker(Callback):
    """Reports at the end of each epoch how fast its steps were: ``steps_per_second`` and ``examples_per_second``.

    Only the time of the steps counts, not what happens between two epochs. The examples of a step are the batches of
    all towers of all processes. A batch is as large as the first dimension of the inputs of the main tower, in the
    first step of the epoch; where its inputs differ in that, nothing tells how many examples there are.

    Args:
        examples_per_step: how many examples a step has, of all towers and processes together; by default the inputs
            tell.
        clock: returns the time in seconds.

    Raises:
        ConfigError: if `examples_per_step` is no positive number.

    Example:
        ```python
        ThroughputTracker(examples_per_step=8 * 1024)  # Tokens, say.
        ```
    """

    def __init__(
        self, examples_per_step: float | None = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if examples_per_step is not None and not examples_per_step > 0:
            raise ConfigError(
                f"ThroughputTracker(examples_per_step={examples_per_step!r}): expected a positive number."
            )
        self._given = examples_per_step
        self._clock = clock
        self._examples = examples_per_step
        self._sizes: list[Any] = []
        self._inputs = FetchDependencies([])
        self._is_due = False
        self._last_step = 0
        self._began = 0.0

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the batch."""
        main_tower = trainer.towers.main
        if self._given is None and main_tower is not None:
            batched = [tensor for tensor in main_tower.inputs if tensor.shape.rank != 0]
            self._inputs = FetchDependencies([tensor.op for tensor in batched])
            with tf.name_scope("throughput/"):
                self._sizes = [tf.shape(tensor, out_type=tf.int64)[:1] for tensor in batched]

    # Last, and `after_epoch` first, so that what other callbacks do meanwhile is not counted.
    @hookimpl(trylast=True)
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Look at the clock."""
        self._is_due = bool(self._sizes)
        self._last_step = trainer.local_step
        self._began = self._clock()

    def before_run(self, run_context: Any) -> Any:
        """Return the sizes of the inputs, in the first run that takes them anyway."""
        # For their size alone, nothing is taken from the data.
        if self._is_due and len(self._inputs.among(run_context.original_args.fetches)) == len(self._sizes):
            return self._sizes
        return None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep how many examples the batches have together, if all inputs agree in that."""
        if run_values.results is None:
            return
        self._is_due = False
        found = {int(size[0]) for size in run_values.results if len(size)}
        strategy = self.trainer.strategy
        self._examples = found.pop() * strategy.num_replicas * strategy.world_size if len(found) == 1 else None

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Report."""
        seconds, steps = self._clock() - self._began, trainer.local_step - self._last_step
        if seconds <= 0 or steps <= 0:
            return
        trainer.monitors.put_scalar("steps_per_second", steps / seconds)
        if self._examples is not None:
            trainer.monitors.put_scalar("examples_per_second", steps / seconds * self._examples)


logger = logging.getLogger(__name__)


class InputMonitor(Callback):
    """Reports at the end of each epoch how long the steps waited for their data, and how much of it was ready.

    As scalars, each over the epoch:

    - ``input/wait_seconds``: how long a step waited for its data, in the mean.
    - ``input/wait_share``: which part of the time of the steps that was, from 0 to 1. Near 0 the data is fast enough;
      otherwise a faster model would not train faster.
    - ``input/queue_fill``: how many datapoints were ready when a step began, in the mean, if the input has a queue.
      ``input/queue_fill_share``: that as a part of the room in the queue.

    The waiting is that in the data code for a `FeedInput`; for others it is the time from the beginning of the step's
    run until it has the datapoints of all towers, which a few more ops of the graph measure along with the step. So it
    includes the few microseconds in which a datapoint is taken that is ready.

    Args:
        clock: returns the time in seconds.

    Raises:
        ConfigError: (at `setup_graph`) the trainer has no input source.

    Example:
        ```python
        trainer.train_with_defaults(callbacks=["InputMonitor"], steps_per_epoch=100, max_epoch=10)
        ```
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._meter: InputMeter | None = None
        self._steps = 0
        self._began = 0.0
        self._seconds = 0.0

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add to the graph what measures.

        Raises:
            ConfigError: if the trainer has no input source.
        """
        source = trainer.input_source
        if source is None:
            raise ConfigError(
                f"InputMonitor measures a trainer's input source, but {type(trainer).__name__} has none. Leave it out, "
                "or use a trainer whose setup_graph takes one"
            )
        self._meter = source.make_meter()
        if self._meter is None:
            logger.info("InputMonitor: steps never wait for a %s, so nothing is reported", type(source).__name__)

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Begin to measure."""
        if self._meter is not None:
            self._meter.start(trainer.sess)

    # Last, and `after_epoch` first, so that what other callbacks do meanwhile is not counted.
    @hookimpl(trylast=True)
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Look at the clock."""
        self._last_step = trainer.local_step
        self._began = self._clock()

    def before_run(self, run_context: Any) -> Any:
        """Return the op that measures, to be run along with the step."""
        return None if self._meter is None else self._meter.op_for(run_context.original_args.fetches)

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Look at the clock."""
        self._seconds = self._clock() - self._began

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Report."""
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
