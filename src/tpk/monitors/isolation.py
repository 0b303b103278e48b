"""Isolation of a monitor: what it raises is logged, and stops neither the training nor other monitors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from tpk.errors import ConfigError, HookError, StopTraining
from tpk.plugin.callback import Callback

logger = logging.getLogger(__name__)

MAX_CONSECUTIVE_FAILURES = 5


class Isolation:
    """Calls the methods of a monitor and survives them.

    A failure is logged with its traceback, unless it is the same as the one before.
    `MAX_CONSECUTIVE_FAILURES` in a row of the same method disable the monitor, but for `after_train`, in
    which it may close what it opened.

    Args:
        monitor: the monitor.
    """

    def __init__(self, monitor: Callback) -> None:
        self.monitor = monitor
        self.disabled = False
        self._calls = 0
        self._failures = 0
        self._in_a_row: dict[str, int] = {}
        self._last_failure: tuple[str, str] | None = None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the method `name` of the monitor.

        Returns:
            What the method returned; None if it failed or the monitor is disabled.

        Raises:
            StopTraining: if the monitor asks for that.
            ConfigError: if the monitor is not configured as it must be, and training has not begun.
        """
        return self._call(name, getattr(self.monitor, name), arguments)

    def guarded(self, hook: str, method: Callable[..., Any], **order: bool) -> Callable[..., Any]:
        """Return `method`, which implements `hook`, so that what it raises stops nothing.

        Args:
            hook: the name of the hook.
            method: a bound method of the monitor.
            order: its place in the order, as `tpk.hookimpl` takes it.

        Raises:
            HookError: if it is a wrapper: what it raises would be raised in all that it wraps.
        """
        if getattr(method, "tpk_impl", {}).get("wrapper"):
            raise HookError(f"{type(self.monitor).__name__}.{hook} is a hook wrapper, which a monitor cannot have")

        @wraps(method)
        def call(*arguments: Any) -> Any:
            return self._call(hook, method, arguments)

        vars(call)["tpk_impl"] = {"wrapper": False, "tryfirst": False, "trylast": False, **order}
        return call

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

    @property
    def name(self) -> str:
        """What to call the monitor in the log."""
        return self.monitor.plugin_name or type(self.monitor).__name__

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
        """Count and log that a method failed; disable the monitor if that was once too often."""
        self._failures += 1
        self._in_a_row[name] = self._in_a_row.get(name, 0) + 1
        failure = (name, repr(error))
        if failure != self._last_failure:
            logger.error("monitor %s failed in %s; training goes on", self.name, name, exc_info=error)
        self._last_failure = failure
        if self._in_a_row[name] >= MAX_CONSECUTIVE_FAILURES and not self.disabled:
            self.disabled = True
            logger.error(
                "monitor %s is disabled: %s failed %d times in a row, last with %r",
                self.name,
                name,
                self._in_a_row[name],
                error,
            )
