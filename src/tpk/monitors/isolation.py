"""A monitor behind a wall: what it raises is logged, and stops neither the training nor other monitors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tpk.errors import ConfigError, StopTraining
from tpk.monitors.base import Monitor, report_methods_of
from tpk.plugin.dispatch import direct
from tpk.plugin.implementations import implementations_of

logger = logging.getLogger(__name__)

MAX_CONSECUTIVE_FAILURES = 5


class IsolatedMonitor:
    """Calls a monitor and survives it.

    A failure is logged with its traceback, unless it is the same as the one before.
    `MAX_CONSECUTIVE_FAILURES` in a row of the same method disable the monitor, but for `after_train`, in
    which it may close what it opened.

    Args:
        monitor: the monitor.
        name: what to call it in the log.
    """

    def __init__(self, monitor: Monitor, name: str) -> None:
        self.monitor = monitor
        self.name = name
        self.disabled = False
        self._hooks: dict[str, Callable[..., Any]] = {
            implementation.hook: direct(implementation) for implementation in implementations_of(monitor)
        }
        self._reports = frozenset(report_methods_of(monitor))
        self._calls = 0
        self._failures = 0
        self._in_a_row: dict[str, int] = {}
        self._last_failure: tuple[str, str] | None = None

    def implements(self, method: str) -> bool:
        """Whether the monitor implements a hook, or overrides a report method."""
        return method in self._hooks or method in self._reports

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a hook with all of its arguments, or any other method.

        Returns:
            What the method returned; None if it failed or the monitor is disabled.

        Raises:
            StopTraining: if the monitor asks for that.
            ConfigError: if the monitor is not configured as it must be, and training has not begun.
        """
        if self.disabled and method != "after_train":
            return None
        self._calls += 1
        try:
            function = self._hooks.get(method) or getattr(self.monitor, method)
            result = function(*arguments)
        except StopTraining:
            raise
        except Exception as error:
            if isinstance(error, ConfigError) and method in ("setup_graph", "before_train"):
                raise
            self.note_failure(method, error)
            return None
        self._in_a_row[method] = 0
        return result

    def note_failure(self, method: str, error: Exception) -> None:
        """Count and log that `method` failed; disable the monitor if that was once too often."""
        self._failures += 1
        self._in_a_row[method] = self._in_a_row.get(method, 0) + 1
        failure = (method, repr(error))
        if failure != self._last_failure:
            logger.error("monitor %s failed in %s; training goes on", self.name, method, exc_info=error)
        self._last_failure = failure
        if self._in_a_row[method] >= MAX_CONSECUTIVE_FAILURES and not self.disabled:
            self.disabled = True
            logger.error(
                "monitor %s is disabled: %s failed %d times in a row, last with %r",
                self.name,
                method,
                self._in_a_row[method],
                error,
            )

    def log_failures(self) -> None:
        """Log how many calls failed, if any did."""
        if self._last_failure is None:
            return
        logger.error(
            "monitor %s failed in %d of %d calls%s, so what it recorded is incomplete; last in %s with %s",
            self.name,
            self._failures,
            self._calls,
            " and was disabled" if self.disabled else "",
            *self._last_failure,
        )
