"""Progress of a training run: a progress bar, and the estimated time left."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

import tpk
from tpk.argument_checks import check_at_least
from tpk.callbacks.run_tensors import find_tensor
from tpk.errors import ConfigError
from tpk.plugin import Callback, hookimpl
from tpk.plugin.run_settings import FOREVER
from tpk.text import human_duration

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_DRAWINGS = 0.5
_SECONDS_BETWEEN_LOG_LINES = 60.0


class ProgressBar(Callback):
    """Shows the progress of the epoch, its speed, the time left, and the cost.

    In a notebook, or if standard error is a terminal, it is one bar for the whole run, drawn twice a second. Elsewhere,
    where a bar would fill a file, it logs a line every minute; a shorter epoch has none.

    The speed is the mean over the epoch so far, like the ``steps_per_second`` of `ThroughputTracker`. If `max_epoch`
    is set, each epoch but the last also shows the time left of the whole run, as ``run: 12:34 left``. It is estimated
    from the mean time of a step so far, including the time between epochs.

    A cost is shown under its name with the value that log and statistics have under that name: its mean over the epoch
    so far, from `EpochMeans`. Tensors that are fetched only for the bar are marked as values of one step, ``now: …``.
    They are fetched only in the step before they are shown; in all other steps the bar only looks at the clock.

    Args:
        names: what to show: names of tensors, with or without ``:0``, in the main training tower or else in the graph;
            tensors; or scalars that `run_step` reports, for a trainer without a `train_op`. None means the costs, if
            the trainer has any.
        clock: returns the time in seconds.

    Example:
        ```python
        ProgressBar(["cost", "accuracy"])
        ```
    """

    def __init__(
        self, names: str | Sequence[Any] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._names = (names,) if isinstance(names, str) else names if names is None else tuple(names)
        if self._names == ():
            self.unused_hooks = {"before_run", "after_run"}
        self._clock = clock
        self._is_bar = False
        self._bar: Any = None
        self._labels: tuple[str, ...] = ()
        self._fetches: tuple[Any, ...] | None = None
        # What to fetch in the next run: in most steps, nothing.
        self._request: tuple[Any, ...] | None = None
        self._run_began = self._began = self._now = 0.0
        self._due = math.inf
        self._steps_before_run = self._first_step = self._step = 0
        self._last_but_one = sys.maxsize
        self._values = ""

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Find the tensors, and whether there is a terminal.

        Raises:
            TpkError: if a tensor is missing.
        """
        has_means = self._names is None and trainer.monitors.costs
        labelled = {} if has_means else _find_tensors(self._names, trainer)
        self._labels = tuple(labelled)
        self._fetches = tuple(labelled.values()) or None
        self._is_bar = sys.stderr.isatty() or _in_notebook()
        self._run_began, self._steps_before_run = self._clock(), trainer.global_step

    @hookimpl(trylast=True)  # As in `ThroughputTracker`.
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Start an epoch."""
        # 0, unless the run was resumed within the epoch.
        self._first_step = self._step = trainer.local_step + 1
        self._request, self._values = None, ""
        self._began = self._now = self._clock()
        self._due = self._began + self._period
        if self._is_bar:
            # An epoch ends with the values of its last step.
            self._last_but_one = trainer.loop.steps_per_epoch - trainer.loop.steps_per_run
            self._request = self._fetches
            self._start_bar(trainer)

    def before_run(self, run_context: Any) -> Any:
        """Return the tensors if they are going to be shown, otherwise None."""
        return self._request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep the values of the tensors, if they were fetched."""
        if self._request is not None and run_values.results is not None:
            self._values = "now: " + _format(dict(zip(self._labels, run_values.results, strict=True)))
            self._request = None
            self._due = -math.inf

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Show the progress if it is time, after a step that fetches the values."""
        self._step = trainer.local_step + 1
        self._now = self._clock()
        if self._now >= self._due:
            has_news, self._due = self._due == -math.inf, self._now + self._period
            # If the last request is still there, steps do not run the session.
            if self._fetches is None or self._request is not None or has_news:
                self._show(trainer)
            else:
                self._request = self._fetches
        if self._last_but_one <= self._step < trainer.loop.steps_per_epoch:
            self._request = self._fetches

    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Show the end of the epoch, and leave the line to other output until the next epoch."""
        if self._bar is not None:
            self._show(trainer)
            self._bar.clear()

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Draw the bar for the last time, without the values, because the session may be unusable."""
        if self._bar is not None:
            self._bar.n = self._step
            self._bar.refresh()
            self._bar.close()

    @property
    def _period(self) -> float:
        return _SECONDS_BETWEEN_DRAWINGS if self._is_bar else _SECONDS_BETWEEN_LOG_LINES

    def _start_bar(self, trainer: tpk.Trainer) -> None:
        title, steps = _title(trainer), trainer.loop.steps_per_epoch
        if self._bar is None:
            self._bar = tqdm(desc=title, total=steps, bar_format=self._bar_format(trainer), **_size())
        self._bar.bar_format = self._bar_format(trainer)
        self._bar.set_description_str(title, refresh=False)
        self._bar.set_postfix_str("", refresh=False)
        self._bar.reset(total=steps)
        self._bar.initial = self._bar.n = self._step
        self._bar.refresh()

    def _show(self, trainer: tpk.Trainer) -> None:
        """Draw the bar, or log a line."""
        monitors = trainer.monitors
        names = monitors.costs if self._names is None else self._names
        means = monitors.cost_means() if self._names is None else monitors.step_means()
        text = ", ".join(filter(None, (_format({name: means[name] for name in means if name in names}), self._values)))
        if self._bar is not None:
            self._bar.bar_format = self._bar_format(trainer)
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.n = self._step
            self._bar.refresh()
            return
        times = ", ".join(filter(None, (self._times(trainer), text)))
        logger.info("%s: %d/%d [%s]", _title(trainer), self._step, trainer.loop.steps_per_epoch, times)

    def _bar_format(self, trainer: tpk.Trainer) -> str:
        """Return tqdm's default format, with times and speed measured by the clock of this callback."""
        return f"{{l_bar}}{{bar}}| {{n_fmt}}/{{total_fmt}} [{self._times(trainer)}{{postfix}}]"

    def _times(self, trainer: tpk.Trainer) -> str:
        """Return the elapsed and the remaining time of the epoch, the speed, and the remaining time of the run."""
        seconds, steps = self._now - self._began, self._step - self._first_step
        if steps <= 0 or seconds <= 0:
            return f"{tqdm.format_interval(seconds)}<?, ? steps/s"
        steps_left = trainer.loop.steps_per_epoch - self._step
        left = tqdm.format_interval(steps_left * seconds / steps)
        text = f"{tqdm.format_interval(seconds)}<{left}, {steps / seconds:.4g} steps/s"
        epochs_left = trainer.loop.max_epoch - trainer.epoch_num
        steps_of_run = trainer.global_step - self._steps_before_run
        if trainer.loop.max_epoch == FOREVER or epochs_left <= 0 or steps_of_run <= 0:
            return text
        seconds_per_step = (self._now - self._run_began) / steps_of_run
        run_left = (epochs_left * trainer.loop.steps_per_epoch + steps_left) * seconds_per_step
        return f"{text}, run: {tqdm.format_interval(run_left)} left"


def _title(trainer: tpk.Trainer) -> str:
    has_end = trainer.loop.max_epoch != FOREVER
    return f"epoch {trainer.epoch_num}/{trainer.loop.max_epoch}" if has_end else f"epoch {trainer.epoch_num}"


def _find_tensors(names: Sequence[Any] | None, trainer: tpk.Trainer) -> dict[str, Any]:
    """Return the tensors to show by their labels."""
    main_tower = trainer.towers.main
    if names is None:
        cost = main_tower.output if main_tower is not None else None
        return {"cost": cost} if isinstance(cost, tf.Tensor) and cost.shape.rank == 0 else {}
    tensors = []
    for name in names:
        try:
            tensors.append(find_tensor(trainer, name) if isinstance(name, str) else name)
        except ConfigError as error:
            if trainer.train_ops:  # Otherwise it is a scalar that `run_step` reports.
                raise ConfigError(f"ProgressBar should show {name!r}, but {error}") from None
    full = [tensor.name.removesuffix(":0") for tensor in tensors]
    short = [name.rsplit("/", 1)[-1] for name in full]
    labels = [last if short.count(last) == 1 else name for name, last in zip(full, short, strict=True)]
    return dict(zip(labels, tensors, strict=True))


def _format(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{label}={_format_value(value)}" for label, value in values.items())


def _format_value(value: Any) -> str:
    if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number):
        return f"{value:.4g}"
    return " ".join(np.array2string(np.asarray(value), precision=4, threshold=8).split())


def _size() -> dict[str, Any]:
    """Return the arguments of tqdm for the size of the bar."""
    try:
        is_known = all(os.get_terminal_size(sys.stderr.fileno()))
    except (OSError, ValueError):
        is_known = False
    # Of a terminal of unknown size, the system says that it has 0 columns and lines, where tqdm would draw nothing.
    return {"dynamic_ncols": True} if is_known or _in_notebook() else {"ncols": 80, "nrows": 24}


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


class EstimatedTimeLeft(Callback):
    """Logs the estimated time left at the end of each epoch, from the durations of the last epochs.

    Args:
        last_k_epochs: the number of last epochs that count.
        median: use the median of their durations, which a single slow epoch does not affect, instead of the mean.
        clock: returns the time in seconds.

    Attributes:
        seconds_left: the estimated time until the run ends; None before the end of the first epoch.
        seconds_total: the same plus the time since the run began; None before the end of the first epoch.

    Raises:
        ConfigError: if `last_k_epochs` is not positive.
    """

    def __init__(
        self, last_k_epochs: int = 5, median: bool = True, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        check_at_least(self, 1, last_k_epochs=last_k_epochs)
        self._average = np.median if median else np.mean
        self._clock = clock
        self._epoch_seconds: deque[float] = deque(maxlen=last_k_epochs)
        self._started = 0.0
        self._epoch_started = 0.0
        self.seconds_left: float | None = None
        self.seconds_total: float | None = None

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Start the clock."""
        self._started = self._epoch_started = self._clock()

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Estimate and log the time left."""
        now = self._clock()
        self._epoch_seconds.append(now - self._epoch_started)
        self._epoch_started = now
        if trainer.loop.max_epoch == FOREVER:
            return
        epochs_left = max(trainer.loop.max_epoch - self.epoch_num, 0)
        self.seconds_left = epochs_left * float(self._average(self._epoch_seconds))
        self.seconds_total = now - self._started + self.seconds_left
        if epochs_left:
            left, total = human_duration(self.seconds_left), human_duration(self.seconds_total)
            logger.info("estimated time left: %s of %s", left, total)

    def state_dict(self) -> dict[str, Any]:
        """Return the durations of the last epochs, of the run and of the current epoch so far."""
        now = self._clock()
        return {
            "epoch_seconds": list(self._epoch_seconds),
            "training": now - self._started,
            "epoch": now - self._epoch_started,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; the time between two attempts does not count."""
        now = self._clock()
        self._epoch_seconds.extend(state["epoch_seconds"])
        self._started = now - state["training"]
        self._epoch_started = now - state["epoch"]
