"""The hooks of an input source that does not belong to a training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from tpk.plugin.callback import STEP_HOOKS, Callback
from tpk.plugin.hook_names import describe
from tpk.plugin.implementations import implementations_of
from tpk.plugin.step import Registration, StepHooks, compile_step, direct, raise_stop


class SourceHooks:
    """Calls the hooks of a source's callbacks for an evaluation or a predictor, which make runs of their own.

    Args:
        callbacks: those that `InputSource.setup` returned.
        trainer: the trainer or predictor that they belong to.
    """

    def __init__(self, callbacks: Iterable[Callback], trainer: Any) -> None:
        self._trainer = trainer
        found = []
        for callback in callbacks:
            callback.trainer = trainer
            name = describe(callback)
            found += [Registration(name, each, raise_stop) for each in implementations_of(callback)]
        self._registrations = sorted(found, key=lambda each: each.implementation.place)

    def call(self, hook: str) -> None:
        """Call a hook whose argument is the trainer."""
        for registration in self._of(hook):
            direct(registration)(self._trainer)

    def compile_step(self, translate_error: Callable[[BaseException], BaseException | None] | None = None) -> StepHooks:
        """Return the hooks of the runs; `translate_error` is asked before the callbacks are."""

        def translate(error: BaseException) -> BaseException | None:
            of_callbacks = map(direct, self._of("translate_error"))
            asked = of_callbacks if translate_error is None else [translate_error, *of_callbacks]
            return next((cause for ask in asked if (cause := ask(error)) is not None), None)

        return compile_step({hook: self._of(hook) for hook in STEP_HOOKS}, direct, raise_stop, translate)

    def after_train(self) -> None:
        """Call every `after_train`, even if some fail; the last failure is raised."""
        with ExitStack() as stack:
            for registration in reversed(self._of("after_train")):
                stack.callback(direct(registration), self._trainer)

    def _of(self, hook: str) -> list[Registration]:
        return [each for each in self._registrations if each.implementation.hook == hook]
