"""Samples of a measurement, taken now and then by a thread while the steps of an epoch run."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tpk.errors import ConfigError
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class SampledStatistics(Callback):
    """Base of callbacks that measure something every few seconds, and report at the end of each epoch.

    A thread measures, from the first step of an epoch until its last one; then one more sample is taken, so that a
    short epoch has one, too. No hook is called in a step. Nothing is kept in a checkpoint: a training that is resumed
    within an epoch measures the rest of it.

    A measurement that fails is a warning, once; nothing is measured any more then.

    A subclass implements `sample` and `statistics`.

    Args:
        interval: how many seconds lie between two samples.

    Raises:
        ConfigError: if `interval` is not positive.

    Example:
        ```python
        class LoadTracker(SampledStatistics):
            def sample(self):
                return {"load": os.getloadavg()[0]}

            def statistics(self, samples):
                return {"load": max(samples["load"])}
        ```
    """

    def __init__(self, interval: float) -> None:
        if not interval > 0:
            raise ConfigError(f"{type(self).__name__}(interval={interval!r}): expected a positive number of seconds.")
        self._interval = interval
        self._is_enabled = True
        self._samples: dict[str, list[float]] = {}
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    @abstractmethod
    def sample(self) -> Mapping[str, float]:
        """Measure once; called in a thread."""

    @abstractmethod
    def statistics(self, samples: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
        """Return what is reported of an epoch.

        Args:
            samples: at least one of each name, in the order in which they were taken.
        """

    def disable(self, reason: object) -> None:
        """Measure and report nothing any more, and say so; the first time only."""
        if self._is_enabled:
            self._is_enabled = False
            logger.warning("%s reports nothing: %s", type(self).__name__, reason)

    # Last, and `after_epoch` first, so that what other callbacks do between two epochs is not measured.
    @hookimpl(trylast=True)
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Begin to measure."""
        self._samples = {}
        if self._is_enabled:
            self._stopped = threading.Event()
            self._thread = threading.Thread(target=self._run, name=f"tpk-{type(self).__name__}", daemon=True)
            self._thread.start()

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Stop to measure, and report."""
        self._stop()
        if self._is_enabled:
            self._take()
        if self._is_enabled:
            for name, value in self.statistics(self._samples).items():
                trainer.monitors.put_scalar(name, value)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Stop to measure, wherever in an epoch the training has ended."""
        self._stop()

    def _stop(self) -> None:
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while self._is_enabled and not self._stopped.wait(self._interval):
            self._take()

    def _take(self) -> None:
        try:
            sample = self.sample()
        except Exception as error:
            self.disable(f"measuring has failed ({type(error).__name__}: {error})")
            return
        for name, value in sample.items():
            self._samples.setdefault(name, []).append(value)
