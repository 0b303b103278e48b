"""The base of all monitors: a no-op for each kind of thing that training reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, ClassVar

import numpy as np

from tpk.monitors.isolation import Isolation
from tpk.plugin.callback import Callback

_ORDER: dict[str, dict[str, bool]] = {
    # Ready before other callbacks report, and done after them.
    "before_train": {"tryfirst": True},
    "before_epoch": {"tryfirst": True},
    "trigger_step": {"trylast": True},
    "after_epoch": {"trylast": True},
    "trigger_epoch": {"trylast": True},
    "after_train": {"trylast": True},
}


class Monitor(Callback):
    """Takes what training reports, and writes, prints, sends or plots it.

    Override what you need. A monitor is a callback as well: its hooks are called like those of any other,
    `before_train` before and `after_train` after those of all other callbacks. What arrives belongs to
    `global_step`, in epoch `epoch_num`.

    A scalar, image or histogram arrives twice: as a value (`process_scalar`, `process_image`,
    `process_histogram`), and inside a protocol buffer (`process_summary`). Implement the one or the other.
    Summaries that were made in the graph arrive as `process_summary`, and each scalar in them as
    `process_scalar` too.

    Whatever a monitor raises is logged and does not stop the training, except `StopTraining`, and a
    `ConfigError` from `setup_graph` or `before_train`: before training has begun, a wrong option shall be
    heard. A monitor whose calls keep failing is disabled.

    Example:
        ```python
        class Alarm(tpk.monitors.Monitor):
            def process_scalar(self, name, value):
                if name == "cost" and not math.isfinite(value):
                    send_mail(f"the cost is {value} in step {self.global_step}")
        ```
    """

    kind: ClassVar[str] = "monitor"

    @cached_property
    def isolation(self) -> Isolation:
        """What calls the monitor, so that its failures stop nothing."""
        return Isolation(self)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks that the monitor implements, isolated; at the end of an epoch and of all, it flushes."""
        own = {**super().hook_implementations(), "after_train": self.after_train}
        if self._flushes:
            own.setdefault("trigger_epoch", self.trigger_epoch)
        hooks = {hook: self.isolation.guarded(hook, method, **_ORDER.get(hook, {})) for hook, method in own.items()}
        if self._flushes:
            hooks["trigger_epoch"] = self._flushing_after(hooks["trigger_epoch"])
        hooks["after_train"] = self._ending(hooks["after_train"])
        return hooks

    def process_scalar(self, name: str, value: int | float) -> None:
        """Take a number.

        Args:
            name: what it measures, such as ``"val-error"``.
            value: an int or a float, which may be NaN or infinite.
        """

    def process_image(self, name: str, images: np.ndarray) -> None:
        """Take images.

        Args:
            name: what they show.
            images: ``uint8``, of shape ``(number, height, width, channels)`` with 1 (grey), 3 (RGB) or 4
                (RGBA) channels.
        """

    def process_histogram(self, name: str, values: np.ndarray) -> None:
        """Take numbers to show the distribution of.

        Args:
            name: what they measure.
            values: all the numbers: ``float64``, finite, of shape ``(number,)``.
        """

    def process_summary(self, summary: Any) -> None:
        """Take a `tf.compat.v1.Summary`, of whatever it is that was reported.

        Args:
            summary: shared with other monitors; copy it before you change it.
        """

    def process_event(self, event: Any) -> None:
        """Take a `tf.compat.v1.Event` that is not a report of values, such as the metadata of a run.

        Args:
            event: its step and wall time are set. Shared with other monitors; copy it before you change it.
        """

    def flush(self) -> None:
        """Bring what has arrived to its destination; called at the end of each epoch and of the training."""

    def start_over(self) -> None:
        """Set aside what an earlier attempt at this run has written, if it left no checkpoint that knows of it.

        Called before `before_train` of a run that may be a second attempt. A monitor that writes files keeps in its
        `state_dict` how much of them counts, and takes back the rest in `load_state_dict`.
        """

    @property
    def _flushes(self) -> bool:
        return "flush" in report_methods_of(self)

    def _flushing_after(self, trigger_epoch: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(trigger_epoch)
        def call(*arguments: Any) -> None:
            trigger_epoch(*arguments)
            self.isolation.call("flush")

        return call

    def _ending(self, after_train: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(after_train)
        def call(*arguments: Any) -> None:
            try:
                if self._flushes:
                    self.isolation.call("flush")
            finally:
                after_train(*arguments)
                self.isolation.log_failures()

        return call


REPORT_METHODS = (
    "process_scalar",
    "process_image",
    "process_histogram",
    "process_summary",
    "process_event",
    "flush",
)
"""The methods by which reports reach a monitor."""


def report_methods_of(monitor: Monitor) -> list[str]:
    """Return which of the report methods `monitor` overrides."""
    return [
        name
        for name in REPORT_METHODS
        if name in vars(monitor) or getattr(type(monitor), name) is not getattr(Monitor, name)
    ]
