"""Input monitor: the time for which steps wait for their data."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.input_source.meter import InputMeter
    from tpk.plugin.trainer import TrainerProtocol

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
