"""The reports of a training run, which go to the history and to each monitor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.checkpoint.encoding import state_keys
from tpk.errors import StopTraining
from tpk.monitors.base import Monitor, report_methods_of
from tpk.monitors.history import History, direction_by_name
from tpk.monitors.summary_protos import histogram_summary, image_summary, read_summary, scalar_summary, scalars_in
from tpk.monitors.values import ReportedValueError, as_distribution, as_images, as_scalar

logger = logging.getLogger(__name__)


class Monitors:
    """Passes the reports of a training run on to the history, and in the chief process to every monitor.

    A failing monitor is isolated; see `Monitor`.

    Args:
        trainer: the trainer that reports.
        monitors: instances of `Monitor`, each once.
        is_chief: if false, reports reach only the history.
        followed: the names of the scalars that callbacks follow, with ``"min"`` or ``"max"``, whichever is better.
        clock: returns the time of an event, in seconds since 1970.

    Attributes:
        monitors: the monitors that receive reports.
        history: the scalars reported so far; see `tpk.History`.
        followed: the names of the scalars that callbacks such as `MinSaver` follow.
        directions: ``"min"`` or ``"max"``, whichever is better, by the name of the scalar; see `set_direction`.
        costs: the names of the costs that the training minimizes.
        cost_means: returns the means of the costs over the epoch so far.

    Example:
        ```python
        trainer.monitors.put_scalar("val-error", 0.02)
        trainer.monitors.get_latest("val-error")  # 0.02
        trainer.monitors.get_history("val-error")  # [(100, 0.031), (200, 0.02)]
        ```
    """

    def __init__(
        self,
        trainer: tpk.Trainer,
        monitors: Iterable[Monitor] = (),
        is_chief: bool = True,
        *,
        followed: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.trainer = trainer
        self.monitors: tuple[Monitor, ...] = tuple(monitors) if is_chief else ()
        self._reports = [(monitor, frozenset(report_methods_of(monitor))) for monitor in self.monitors]
        self._keyed = dict(zip(state_keys(self.monitors), self.monitors, strict=True))
        # The states of monitors that the resumed run does not have; the next resume may have them again.
        self._unused_states: dict[str, Any] = {}
        self.history = History()
        self.directions = dict(followed or {})
        self.followed = tuple(self.directions)
        self.costs: tuple[str, ...] = ()
        self.cost_means: Callable[[], Mapping[str, float]] = dict
        # The sum and the number of the values that `run_step` has reported in this epoch, by scalar.
        self._step_sums: dict[str, tuple[float, int]] = {}
        # The epoch and the step of the last report, by scalar.
        self._last_reports: dict[str, tuple[int, int]] = {}
        self._reported_twice: set[str] = set()
        self._clock = clock
        self._is_paused = False

    def pause(self) -> None:
        """Ignore reports until `resume`, while a checkpoint is restored."""
        self._is_paused = True

    def resume(self) -> None:
        """Take reports again."""
        self._is_paused = False

    # Reports

    def put_scalar(self, name: str, value: Any) -> None:
        """Report a number. Numbers reported within `run_step` are averaged over the epoch.

        If a name is reported twice in one step, a warning says so, once for each name.

        Args:
            name: the name of the scalar, such as ``"val-error"``; any non-empty string.
            value: a Python or NumPy number, or an array without dimensions.

        Raises:
            ReportedValueError: if the value is not a single real number.
        """
        number = as_scalar(name, value)
        if self.trainer.loop.is_in_run_step and not self._is_paused:
            total, count = self._step_sums.get(name, (0.0, 0))
            self._step_sums[name] = (total + number, count + 1)
        else:
            self._put_number(name, number)
            self._hand_on_summary(scalar_summary, name, number)

    def put_image(self, name: str, images: Any) -> None:
        """Report one or more images.

        Args:
            name: the name of the images.
            images: an array of shape ``(height, width)``, ``(height, width, channels)`` or ``(number, height,
                width, channels)`` with 1, 3 (RGB) or 4 (RGBA) channels; ``uint8``, or other numbers from 0 to
                255. Values outside this range are clipped.

        Raises:
            ReportedValueError: if the array has another shape or dtype.
        """
        array = as_images(name, images)
        self._hand_on("process_image", name, array)
        self._hand_on_summary(image_summary, name, array)

    def put_histogram(self, name: str, values: Any) -> None:
        """Report the distribution of numbers.

        Args:
            name: the name of the distribution.
            values: an array of any shape. NaN and the infinities are left out, with a warning.

        Raises:
            ReportedValueError: if the values are not real numbers, or there are none.
        """
        array = as_distribution(name, values)
        finite = array[np.isfinite(array)]
        left_out = len(array) - len(finite)
        if left_out and not self._is_paused:
            message = "histogram %r in step %d: %d of %d values are not finite and left out"
            logger.warning(message, name, self.trainer.global_step, left_out, len(array))
        if len(finite):
            self._hand_on("process_histogram", name, finite)
            self._hand_on_summary(histogram_summary, name, finite)

    # A method, so that subclasses can give values other names.
    read_summary = staticmethod(read_summary)

    def put_summary(self, summary: Any) -> None:
        """Report the result of summary ops of the graph.

        Its scalars are also reported as scalars. The name of the main tower and the suffix ``-summary`` are removed
        from the names.

        Args:
            summary: a `tf.compat.v1.Summary`, or its serialized bytes.

        Raises:
            ReportedValueError: if it is neither.
        """
        named = self.read_summary(summary)
        for name, number in scalars_in(named):
            self._put_number(name, number)
        self._hand_on("process_summary", named)

    def put_event(self, event: Any) -> None:
        """Report an event that does not hold values, such as run metadata.

        Args:
            event: a `tf.compat.v1.Event`; its step and wall time are set in a copy.

        Raises:
            ReportedValueError: if it is not an event.
        """
        if not isinstance(event, tf.compat.v1.Event):
            raise ReportedValueError(f"put_event takes a tf.compat.v1.Event, got {event!r}.")
        stamped = tf.compat.v1.Event()
        stamped.CopyFrom(event)
        stamped.step = self.trainer.global_step
        stamped.wall_time = self._clock()
        self._hand_on("process_event", stamped)

    def step_means(self) -> dict[str, float]:
        """Return the means, over the epoch so far, of the scalars that `run_step` has reported."""
        return {name: total / count for name, (total, count) in self._step_sums.items()}

    def report_step_means(self) -> None:
        """Report the means of the scalars that `run_step` has reported, at the end of the epoch."""
        means = self.step_means()
        self._step_sums.clear()
        for name, mean in means.items():
            self.put_scalar(name, mean)

    # What scalars mean

    def set_direction(self, name: str, mode: str | None = None) -> None:
        """Say which values of a scalar are better. The log and ``tpk runs`` show its best value.

        Args:
            name: the name of the scalar.
            mode: ``"min"`` if smaller values are better, ``"max"`` if larger values are better; None if its name says
                it: it ends in ``cost``, ``loss``, ``error`` or ``accuracy``. Otherwise nothing is known.

        Example:
            ```python
            def setup_graph(self, trainer):
                trainer.monitors.set_direction("validation_map", "max")
            ```
        """
        mode = mode or direction_by_name(name)
        if mode is not None:
            self.directions.setdefault(name, mode)

    def set_costs(self, names: Iterable[str], means: Callable[[], Mapping[str, float]]) -> None:
        """Name the costs that the training minimizes; the log shows their best values if nothing else has a direction.

        Args:
            names: the names of the scalars.
            means: returns their means over the epoch so far, for the progress bar.
        """
        self.costs, self.cost_means = tuple(names), means

    # The scalars reported so far

    @property
    def names(self) -> list[str]:
        """The names of the scalars reported so far."""
        return list(self.history)

    def get_latest(self, name: str) -> float:
        """Return the last value of the scalar `name`.

        Raises:
            UnknownScalarError: if it was never reported.
        """
        return self.history.latest(name)

    def get_history(self, name: str) -> list[tuple[int, float]]:
        """Return the global steps and values of the scalar `name`, oldest first.

        Raises:
            UnknownScalarError: if it was never reported.
        """
        return self.history.of(name)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return the history and the states of the monitors. Monitors without a state are flushed.

        The state of a failing monitor is None: how much of its files belongs to this checkpoint is unknown.
        """
        for monitor in self.monitors:
            if not (monitor.state_attributes or monitor._overrides("state_dict")):
                monitor.isolation.call("flush")
        states = {key: monitor.isolation.call("state_dict") for key, monitor in self._keyed.items()}
        return {
            "history": self.history.state_dict(),
            "step_sums": {name: list(sums) for name, sums in self._step_sums.items()},
            "monitors": {**self._unused_states, **{key: state for key, state in states.items() if state != {}}},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned, before `before_train`. Mismatches are logged."""
        self.history.load_state_dict(state["history"])
        self._step_sums = {name: (total, count) for name, (total, count) in state.get("step_sums", {}).items()}
        states = state["monitors"]
        for key, monitor in self._keyed.items():
            if key not in states:
                monitor.isolation.call("start_over")
            elif states[key] is None:
                message = "monitor %s was failing when the checkpoint was taken; its output stays as it is"
                logger.warning(message, monitor.isolation.name)
            else:
                monitor.isolation.call("load_state_dict", states[key])
        self._unused_states = {key: own for key, own in states.items() if key not in self._keyed}
        if self._unused_states and self.monitors:
            message = "the checkpoint has the state of monitors that this run does not have: %s. Their output is kept."
            logger.warning(message, ", ".join(sorted(self._unused_states)))

    def start_over(self) -> None:
        """Let every monitor set aside the output of an attempt at this run that left no checkpoint."""
        for monitor in self.monitors:
            monitor.isolation.call("start_over")

    def _put_number(self, name: str, number: int | float) -> None:
        if not self._is_paused:
            self._warn_if_reported_twice(name)
            self.history.add(name, self.trainer.epoch_num, self.trainer.global_step, number)
        self._hand_on("process_scalar", name, number)

    def _warn_if_reported_twice(self, name: str) -> None:
        # The epoch matters, too: an epoch may have no steps.
        epoch, step = self.trainer.epoch_num, self.trainer.global_step
        if self._last_reports.get(name) == (epoch, step) and name not in self._reported_twice:
            self._reported_twice.add(name)
            message = (
                "the scalar %r was reported twice in step %d. If two callbacks report it, rename one of the scalars."
            )
            logger.warning(message, name, step)
        self._last_reports[name] = (epoch, step)

    def _hand_on_summary(self, make_summary: Callable[[str, Any], Any], name: str, value: Any) -> None:
        """Pass on a summary of `value`, which is made only if a monitor processes summaries."""
        if any("process_summary" in reports for _, reports in self._reports):
            self._hand_on("process_summary", make_summary(name, value))

    def _hand_on(self, method: str, *arguments: Any) -> None:
        """Call a report method of the monitors that override it.

        If a monitor requests the end of the run, the others and the caller still complete this report.
        """
        for monitor, reports in () if self._is_paused else self._reports:
            if method not in reports:
                continue
            try:
                monitor.isolation.call(method, *arguments)
            except StopTraining as stop:
                self.trainer.request_stop(f"{stop}")
