"""The base class of all monitors, and the isolation of their failures."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tpk
from tpk.durable_files import free_name, refuse_link
from tpk.errors import ConfigError, HookError, StopTraining
from tpk.plugin.callback import Callback, in_run_dir
from tpk.plugin.hookspecs import hookimpl

logger = logging.getLogger(__name__)

MAX_CONSECUTIVE_FAILURES = 5
REPORT_METHODS = ("process_scalar", "process_image", "process_histogram", "process_summary", "process_event", "flush")
"""The methods through which reports reach a monitor."""


class Monitor(Callback):
    """Receives the reports of a training run, and writes, prints, sends or plots them.

    Override the methods you need. A monitor is also a callback, so it can implement hooks. Its `before_train` and
    `before_epoch` run before the hooks of other callbacks, its other hooks after them. Reports belong to the current
    `global_step` and `epoch_num`.

    A scalar, image or histogram arrives twice: as a value (`process_scalar`, `process_image`, `process_histogram`) and
    in a protocol buffer (`process_summary`). Implement one or the other. Summaries made in the graph arrive through
    `process_summary`, and each of their scalars also through `process_scalar`.

    Errors in a monitor are logged and do not stop training. The only exceptions to this are `StopTraining`, and
    a `ConfigError` from `setup_graph` or `before_train`, so that wrong options are reported before training begins. A
    monitor that keeps failing is disabled.

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
        """Calls the methods of this monitor, and logs their failures."""
        return Isolation(self)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks that the monitor implements, isolated, and the hooks at which it flushes."""
        hooks = {"trigger_epoch": _flush_only, "after_train": _flush_only, **super().hook_implementations()}
        return {hook: self.isolation.guarded(hook, method) for hook, method in hooks.items()}

    def process_scalar(self, name: str, value: int | float) -> None:
        """Process a number.

        Args:
            name: the name of the scalar, such as ``"val-error"``.
            value: an int or a float, which may be NaN or infinite.
        """

    def process_image(self, name: str, images: np.ndarray) -> None:
        """Process images.

        Args:
            name: the name of the images.
            images: ``uint8``, of shape ``(number, height, width, channels)`` with 1 (grey), 3 (RGB) or 4 (RGBA)
                channels.
        """

    def process_histogram(self, name: str, values: np.ndarray) -> None:
        """Process a distribution of numbers.

        Args:
            name: the name of the distribution.
            values: the numbers: ``float64``, finite, of shape ``(number,)``.
        """

    def process_summary(self, summary: Any) -> None:
        """Process a `tf.compat.v1.Summary`, whatever was reported.

        Args:
            summary: shared with other monitors; copy it before you change it.
        """

    def process_event(self, event: Any) -> None:
        """Process a `tf.compat.v1.Event` that does not report values, such as run metadata.

        Args:
            event: its step and wall time are set. Shared with other monitors; copy it before you change it.
        """

    def flush(self) -> None:
        """Write or send everything that has arrived. Called at the end of each epoch and of the run."""

    def start_over(self) -> None:
        """Set aside the output of an earlier attempt at this run that left no checkpoint.

        Called before `before_train`, if the run may be a second attempt. A monitor that writes files returns in
        `state_dict` how much of them belongs to the checkpoint, and removes the rest in `load_state_dict`.
        """


class FileMonitor(Monitor):
    """A monitor that writes scalars to one file.

    Args:
        filename: in the `run_dir` of the trainer, unless it is absolute.
        clock: returns the time, in seconds since 1970.
    """

    def __init__(self, filename: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self.filename = Path(filename)
        self.state_key = str(self.filename)
        self._clock = clock

    @property
    def path(self) -> Path:
        """The file.

        Raises:
            ConfigError: if the trainer has no `run_dir` and the file name is relative.
        """
        return in_run_dir(self, self.filename)

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Check that the file can be written.

        Raises:
            ConfigError: if the trainer has no `run_dir` to write it to, or it is a symbolic link.
        """
        refuse_link(self.path)

    def set_aside(self) -> None:
        """Rename the file of an earlier attempt or run, if there is one, to ``stats-1.csv`` for example."""
        if self.path.exists():
            aside = free_name(self.path.parent, self.path.stem, self.path.suffix)
            self.path.rename(aside)
            logger.info("%s is of an earlier attempt or run; it is now %s", self.path, aside)


def _flush_only() -> None:
    """Stand in for a hook that the monitor does not implement, but at which it flushes."""


class Isolation:
    """Calls the methods of a monitor, and logs their failures instead of raising them.

    A failure is logged with its traceback, unless it is the same as the previous one. If one method fails
    `MAX_CONSECUTIVE_FAILURES` times in a row, the monitor is disabled: only `after_train` is still called, so that it
    can close files and connections.

    Args:
        monitor: the monitor.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.disabled = False
        self._calls = 0
        self._failures = 0
        self._in_a_row: dict[str, int] = {}
        self._last_failure: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """The name of the monitor in the log."""
        return self.monitor.plugin_name or type(self.monitor).__name__

    def guarded(self, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return `method`, which implements `hook`, so that its failures are logged, and reports are flushed in time.

        Raises:
            HookError: if it is a wrapper: its failure would make the hooks that it wraps fail.
        """
        if getattr(method, "tpk_impl", {}).get("wrapper"):
            raise HookError(f"{type(self.monitor).__name__}.{hook} is a hook wrapper, which a monitor cannot have")

        @wraps(method)
        def call(*arguments: Any) -> Any:
            if hook == "after_train":
                with suppress(StopTraining):
                    self.call("flush")
            result = self._call(hook, method, arguments)
            if hook == "trigger_epoch":
                self.call("flush")
            elif hook == "after_train":
                self._log_failures()
            return result

        # A monitor is ready before other callbacks report, and is done after them.
        begins = hook in ("before_train", "before_epoch")
        ends = hook in ("trigger_step", "after_epoch", "trigger_epoch", "after_train")
        return hookimpl(tryfirst=begins, trylast=ends)(call)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the method `name` of the monitor.

        Returns:
            The result of the method; None if it failed or the monitor is disabled.

        Raises:
            StopTraining: if the monitor raised it.
            ConfigError: if the monitor raised it before training began.
        """
        return self._call(name, getattr(self.monitor, name), arguments)

    def _call(self, name: str, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self.disabled and name != "after_train":
            return None
        self._calls += 1
        try:
            result = method(*arguments)
        except StopTraining:
            raise
        except Exception as error:
            if isinstance(error, ConfigError) and name in ("setup_graph", "before_train"):
                raise
            self._note_failure(name, error)
            return None
        self._in_a_row[name] = 0
        return result

    def _note_failure(self, name: str, error: Exception) -> None:
        """Count and log a failure of the method `name`; disable the monitor after too many."""
        self._failures += 1
        self._in_a_row[name] = self._in_a_row.get(name, 0) + 1
        failure = (name, repr(error))
        if failure != self._last_failure:
            logger.error("monitor %s failed in %s; the training continues", self.name, name, exc_info=error)
        self._last_failure = failure
        if self._in_a_row[name] >= MAX_CONSECUTIVE_FAILURES and not self.disabled:
            self.disabled = True
            message = "monitor %s is disabled: %s failed %d times in a row, last with %r"
            logger.error(message, self.name, name, self._in_a_row[name], error)

    def _log_failures(self) -> None:
        """Log at the end of the run how many calls failed."""
        if self._last_failure is not None:
            message = "monitor %s failed in %d of %d calls%s, so its records are incomplete; last in %s with %s"
            ending = " and was disabled" if self.disabled else ""
            logger.error(message, self.name, self._failures, self._calls, ending, *self._last_failure)


def report_methods_of(monitor: Monitor) -> list[str]:
    """Return the report methods that `monitor` overrides."""
    own, kind = vars(monitor), type(monitor)
    return [name for name in REPORT_METHODS if name in own or getattr(kind, name) is not getattr(Monitor, name)]
