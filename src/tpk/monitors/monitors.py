"""All monitors of a trainer, as one: what training reports goes here, and from here to each of them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tpk.checkpoint.encoding import state_keys
from tpk.errors import PluginError, StopTraining
from tpk.monitors.base import Monitor
from tpk.monitors.history import ScalarHistory
from tpk.monitors.isolation import IsolatedMonitor
from tpk.monitors.step_requests import StepRequests
from tpk.monitors.summary_protos import (
    histogram_summary,
    image_summary,
    read_summary,
    scalar_summary,
    scalars_in,
)
from tpk.monitors.values import ReportedValueError, as_distribution, as_images, as_scalar
from tpk.plugin import HOOK_NAMES, Callback, hookimpl

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer

logger = logging.getLogger(__name__)


class Monitors(Callback):
    """What training reports goes through here: to the history, and, in the chief process, to every monitor.

    It is a callback; the trainer registers it after all others, and it calls the hooks of the monitors. A
    failing monitor is isolated, see `IsolatedMonitor`.

    Args:
        monitors: instances of `Monitor`.
        is_chief: if false, the history is kept and nothing is handed on.
        clock: returns the time of an event, in seconds since 1970.

    Attributes:
        monitors: the monitors that are reported to.
        muted: while it is true, what is reported is dropped. A training that is resumed sets up callbacks that have
            reported it before.

    Raises:
        PluginError: if one of `monitors` is no `Monitor`, or is there twice.

    Example:
        ```python
        trainer.monitors.put_scalar("val-error", 0.02)
        trainer.monitors.get_latest("val-error")  # 0.02
        trainer.monitors.get_history("val-error")  # [(100, 0.031), (200, 0.02)]
        ```
    """

    chief_only = False

    def __init__(
        self, monitors: Iterable[Monitor], is_chief: bool = True, *, clock: Callable[[], float] = time.time
    ) -> None:
        given = list(monitors)
        _check(given)
        self.monitors: tuple[Monitor, ...] = tuple(given) if is_chief else ()
        self._isolated = [
            IsolatedMonitor(monitor, name)
            for monitor, name in zip(self.monitors, _unique_names(self.monitors), strict=True)
        ]
        self._keyed = dict(zip(state_keys(self.monitors), self._isolated, strict=True))
        # The states of monitors that a resumed run does without; another resume may have them again.
        self._unused_states: dict[str, Any] = {}
        for isolated in self._isolated:
            isolated.monitor.name = isolated.name
        self._step_requests = StepRequests(self._isolated)
        self._history = ScalarHistory()
        self._clock = clock
        self.muted = False

    @property
    def trainer(self) -> Trainer:
        """The trainer that reports."""
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Trainer) -> None:
        self._trainer = trainer
        for monitor in self.monitors:
            monitor.trainer = trainer

    # What training reports

    def put_scalar(self, name: str, value: Any) -> None:
        """Report a number.

        Args:
            name: what it measures, such as ``"val-error"``; any string that is not empty.
            value: a number of Python or NumPy, or an array without dimensions.

        Raises:
            ReportedValueError: if it is no single real number.
        """
        number = as_scalar(name, value)
        if self.muted:
            return
        self._history.add(name, self.global_step, number)
        self._hand_on("process_scalar", name, number)
        self._hand_on_summary(scalar_summary, name, number)

    def put_image(self, name: str, images: Any) -> None:
        """Report one or more images.

        Args:
            name: what they show.
            images: an array of shape ``(height, width)``, ``(height, width, channels)`` or ``(number, height,
                width, channels)`` with 1, 3 (RGB) or 4 (RGBA) channels; ``uint8``, or other numbers from 0 to
                255. What lies outside is clipped.

        Raises:
            ReportedValueError: if the shape or dtype is another.
        """
        array = as_images(name, images)
        if self.muted:
            return
        self._hand_on("process_image", name, array)
        self._hand_on_summary(image_summary, name, array)

    def put_histogram(self, name: str, values: Any) -> None:
        """Report numbers, to show how they are distributed.

        Args:
            name: what they measure.
            values: an array of any shape. What is not finite is left out, which is logged.

        Raises:
            ReportedValueError: if they are not real numbers, or none at all.
        """
        array = as_distribution(name, values)
        if self.muted:
            return
        finite = array[np.isfinite(array)]
        if len(finite) < len(array):
            logger.warning(
                "histogram %r in step %d: %d of %d values are not finite and left out",
                name,
                self.global_step,
                len(array) - len(finite),
                len(array),
            )
        if len(finite):
            self._hand_on("process_histogram", name, finite)
            self._hand_on_summary(histogram_summary, name, finite)

    def put_summary(self, summary: Any) -> None:
        """Report what summary ops of the graph returned.

        The scalars in it are handed on as scalars, too. The name of the main tower and the suffix
        ``-summary`` are taken out of the names.

        Args:
            summary: a `tf.compat.v1.Summary`, or its serialized bytes.

        Raises:
            ReportedValueError: if it is neither.
        """
        named = read_summary(summary)
        if self.muted:
            return
        for name, number in scalars_in(named):
            self._history.add(name, self.global_step, number)
            self._hand_on("process_scalar", name, number)
        self._hand_on("process_summary", named)

    def put_event(self, event: Any) -> None:
        """Report an event that is no value, such as run metadata.

        Args:
            event: a `tf.compat.v1.Event`; its step and wall time are set in a copy.

        Raises:
            ReportedValueError: if it is none.
        """
        if not isinstance(event, tf.compat.v1.Event):
            raise ReportedValueError(f"put_event takes a tf.compat.v1.Event, got {event!r}.")
        if self.muted:
            return
        stamped = tf.compat.v1.Event()
        stamped.CopyFrom(event)
        stamped.step = self.global_step
        stamped.wall_time = self._clock()
        self._hand_on("process_event", stamped)

    def flush(self) -> None:
        """Have every monitor bring what it has to its destination."""
        self._hand_on("flush")

    # What was reported

    @property
    def names(self) -> list[str]:
        """The scalars reported so far."""
        return self._history.names

    def get_latest(self, name: str) -> float:
        """Return the last value of the scalar `name`.

        Raises:
            UnknownScalarError: if it was never reported.
        """
        return self._history.latest(name)

    def get_history(self, name: str) -> list[tuple[int, float]]:
        """Return the global steps and values of the scalar `name`, oldest first.

        Raises:
            UnknownScalarError: if it was never reported.
        """
        return self._history.of(name)

    def state_dict(self) -> dict[str, Any]:
        """Return the history and the states of the monitors; those that have none are flushed.

        The state of a monitor that fails is None: it is not known how much of its files belongs to this moment.
        """
        for isolated in self._isolated:
            if not isolated.monitor._overrides("state_dict"):
                isolated.call("flush")
        states = {key: isolated.call("state_dict") for key, isolated in self._keyed.items()}
        return {
            "history": self._history.state_dict(),
            "monitors": {**self._unused_states, **{key: state for key, state in states.items() if state != {}}},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned, before `before_train`; what does not match is logged."""
        self._history.load_state_dict(state["history"])
        states = state["monitors"]
        for key, isolated in self._keyed.items():
            if key not in states:
                isolated.call("start_over")
            elif states[key] is None:
                logger.warning(
                    "monitor %s was failing when the checkpoint was taken; what it wrote stays as it is", isolated.name
                )
            else:
                isolated.call("load_state_dict", states[key])
        self._unused_states = {key: own for key, own in states.items() if key not in self._keyed}
        if self._unused_states and self.monitors:
            logger.warning(
                "the checkpoint has the state of monitors that this run does not have: %s. What they wrote stays as it "
                "is.",
                ", ".join(sorted(self._unused_states)),
            )

    def start_over(self) -> None:
        """Have every monitor remove what an attempt at this run has written that left no checkpoint."""
        for isolated in self._isolated:
            isolated.call("start_over")

    # Hooks

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks that at least one monitor implements, and those that flush."""
        flushing = ("trigger_epoch", "after_train")
        return {
            hook: getattr(self, hook)
            for hook in HOOK_NAMES
            if hook in flushing or any(isolated.implements(hook) for isolated in self._isolated)
        }

    def setup_graph(self, trainer: Trainer) -> None:
        """Call the monitors' `setup_graph`."""
        self._hand_on("setup_graph", trainer)

    # First, so that the monitors are ready for what other callbacks report in the same hook.
    @hookimpl(tryfirst=True)
    def before_train(self, trainer: Trainer) -> None:
        """Call the monitors' `before_train`."""
        self._hand_on("before_train", trainer)

    @hookimpl(tryfirst=True)
    def before_epoch(self, trainer: Trainer) -> None:
        """Call the monitors' `before_epoch`."""
        self._hand_on("before_epoch", trainer)

    def before_run(self, run_context: Any) -> Any:
        """Return what the monitors want to run along with the step, as one request."""
        return self._step_requests.merge(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Give each monitor its results."""
        self._step_requests.distribute(run_context, run_values)

    @hookimpl(trylast=True)
    def trigger_step(self, trainer: Trainer) -> None:
        """Call the monitors' `trigger_step`."""
        self._hand_on("trigger_step", trainer)

    @hookimpl(trylast=True)
    def after_epoch(self, trainer: Trainer) -> None:
        """Call the monitors' `after_epoch`."""
        self._hand_on("after_epoch", trainer)

    # Last, so that what other callbacks report in the same hook is flushed with the epoch it belongs to.
    @hookimpl(trylast=True)
    def trigger_epoch(self, trainer: Trainer) -> None:
        """Call the monitors' `trigger_epoch`, then flush them."""
        self._hand_on("trigger_epoch", trainer)
        self.flush()

    @hookimpl(trylast=True)
    def after_train(self, trainer: Trainer) -> None:
        """Flush the monitors, call their `after_train`, and log which of them failed."""
        try:
            self.flush()
        finally:
            self._hand_on("after_train", trainer)
            for isolated in self._isolated:
                isolated.log_failures()

    def _hand_on_summary(self, make_summary: Callable[[str, Any], Any], name: str, value: Any) -> None:
        """Hand on a summary of `value`, made only if a monitor takes summaries."""
        if any(isolated.implements("process_summary") for isolated in self._isolated):
            self._hand_on("process_summary", make_summary(name, value))

    def _hand_on(self, method: str, *arguments: Any) -> None:
        """Call `method`, a report method or a hook, of the monitors that implement it.

        A monitor that asks for the end of the training does not keep the call from those after it.
        """
        request: StopTraining | None = None
        for isolated in self._isolated:
            if not isolated.implements(method):
                continue
            try:
                isolated.call(method, *arguments)
            except StopTraining as stop:
                request = request or stop
        if request is not None:
            raise request


def _check(monitors: list[Any]) -> None:
    for position, monitor in enumerate(monitors):
        if not isinstance(monitor, Monitor):
            raise PluginError(
                f"{monitor!r} is no monitor: expected an instance of tpk.monitors.Monitor. "
                "What only uses hooks is a callback, and belongs in `callbacks`."
            )
        if any(monitor is other for other in monitors[:position]):
            raise PluginError(f"the monitor {monitor!r} is listed twice. List it once, or make a second instance.")


def _unique_names(monitors: Iterable[Monitor]) -> list[str]:
    """Name each monitor after its class: ``JSONWriter``, ``JSONWriter#2``."""
    seen: Counter[str] = Counter()
    names = []
    for monitor in monitors:
        name = type(monitor).__name__
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return names
