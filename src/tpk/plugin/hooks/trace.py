"""Traced step hooks: through pluggy, slower, with every call logged, and with the same calls in the same order.

``TPK_TRACE=1`` uses this in place of the compiled step. Requests and values differ from plugin to plugin,
which pluggy knows nothing of, so the functions that it calls put them aside and fetch them by the plugin's
name.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import attrs
import pluggy

from tpk.errors import StopTraining
from tpk.plugin.callback import MAY_STOP
from tpk.plugin.dispatch import StepHooks, compile_step, direct
from tpk.plugin.hooks.implementations import Implementation
from tpk.plugin.hooks.registration import note_failure

logger = logging.getLogger("tpk.trace")


class TracedStep:
    """Stands between `StepHooks` and pluggy while hooks are traced."""

    def __init__(self, manager: pluggy.PluginManager, take_stop: Callable[[StopTraining], None]) -> None:
        """Let `manager` log each hook call, with arguments and results, to the logger ``tpk.trace``."""
        self._take_stop = take_stop
        self._hook = manager.hook
        self._trace = manager.trace.root.get("plugin")
        self._requests: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        manager.trace.root.setwriter(lambda text: logger.info(text.rstrip("\n")))
        manager.enable_tracing()

    def step_function(self, name: str, implementation: Implementation) -> Callable[..., Any]:
        """Return what pluggy calls for `implementation` of the plugin `name`."""
        method, hook = direct(implementation), implementation.hook

        def call(*arguments: Any) -> Any:
            self._trace(name, hook)
            try:
                return method(*arguments)
            except StopTraining as stop:
                note_failure(stop, name, hook)
                if hook not in MAY_STOP:
                    raise
                self._take_stop(stop)
            except BaseException as error:
                note_failure(error, name, hook)
                raise

        def before_run(run_context: Any) -> Any:
            self._requests[name] = call(run_context)
            return self._requests[name]

        def after_run(run_context: Any, run_values: Any) -> None:
            call(run_context, run_values[name])

        def trigger_step(trainer: Any) -> None:
            call(trainer)

        functions: dict[str, Callable[..., Any]] = {
            "before_run": before_run,
            "after_run": after_run,
            "trigger_step": trigger_step,
        }
        return functions[hook]

    def compile(self) -> StepHooks:
        """Return step hooks with as many entries as the compiled ones, which call pluggy once for each hook.

        The first `before_run` makes the call for all of them, the last `after_run` likewise.
        """
        compiled = compile_step(self._hook)
        requesting, receiving = compiled.names["before_run"], compiled.names["after_run"]
        return attrs.evolve(
            compiled,
            before_run=tuple(functools.partial(self._request, name, name == requesting[0]) for name in requesting),
            after_run=tuple(
                (functools.partial(self._receive, name, name == receiving[-1]), index)
                for name, (_, index) in zip(receiving, compiled.after_run, strict=True)
            ),
            trigger_step=(self._trigger,) if compiled.trigger_step else (),
        )

    def _request(self, name: str, is_first: bool, run_context: Any) -> Any:
        if is_first:
            self._requests.clear()
            self._hook.before_run(run_context=run_context)
        return self._requests[name]

    def _receive(self, name: str, is_last: bool, run_context: Any, run_values: Any) -> None:
        self._values[name] = run_values
        if is_last:
            self._hook.after_run(run_context=run_context, run_values=self._values)

    def _trigger(self, trainer: Any) -> None:
        self._hook.trigger_step(trainer=trainer)
