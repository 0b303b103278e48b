"""The hook manager: the plugins of one trainer, in the order in which they are called."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs
import pluggy

from tpk.errors import HookError
from tpk.plugin.callback import Callback
from tpk.plugin.dispatch import StepHooks, call_order, compile_step, direct
from tpk.plugin.environment import is_on
from tpk.plugin.implementations import Implementation, implementations_of
from tpk.plugin.near_miss import describe
from tpk.plugin.registration import Registration, note_failure
from tpk.plugin.spec import SPECS
from tpk.plugin.trace import TracedStep

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer

logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class _Plugin:
    name: str
    plugin: object
    implementations: list[Implementation]


class HookManager(pluggy.PluginManager):
    """A `pluggy.PluginManager` that calls plugins in the order in which they were registered.

    Plugins marked `tryfirst` are called before all others and those marked `trylast` after them, in the order of
    registration in either case. pluggy's own listings show what stands for the plugins there; `plugins` has the
    plugins themselves.

    Example:
        ```python
        hooks = HookManager()
        hooks.register_all([ModelSaver(), ScalarPrinter(), ModelSaver()])
        # ["ModelSaver", "ScalarPrinter", "ModelSaver#2"]
        hooks.hook.before_epoch(trainer=trainer)
        step_hooks = hooks.compile_step()
        ```
    """

    def __init__(self) -> None:
        super().__init__("tpk")
        for specs in SPECS:
            self.add_hookspecs(specs)
        self._plugins: list[_Plugin] = []
        self._traced_step = TracedStep(self) if is_on("TPK_TRACE") else None

    @property
    def plugins(self) -> dict[str, object]:
        """The registered plugins, as they were given, by their unique names, in order of registration."""
        return {each.name: each.plugin for each in self._plugins}

    def register_all(self, plugins: Iterable[object]) -> list[str]:
        """Register `plugins` after those that are there already; all of them, or none if one does not fit.

        Args:
            plugins: callbacks, modules of hook implementations, or other objects that have some.

        Returns:
            Their names: that of the class or module, with ``#2`` and so on if it is taken. A `Callback` has
            it as its attribute `name`, too.

        Raises:
            HookError: a plugin is registered already, implements no hook, or implements one in a way that
                does not fit its specification.
        """
        known = list(self._plugins)
        for plugin in plugins:
            for other in known:
                if other.plugin is plugin:
                    raise HookError(f"{other.name} is listed twice: one object can be registered once only")
            name = _unique_name(describe(plugin), {other.name for other in known})
            known.append(_Plugin(name, plugin, implementations_of(plugin)))
        added = known[len(self._plugins) :]
        for each in added:
            if isinstance(each.plugin, Callback):
                _set_name(each.plugin, each.name)
        self._replace_registrations(known)
        return [each.name for each in added]

    def register(self, plugin: object, name: str | None = None) -> str:
        """Register one plugin, as `register_all` does; it cannot choose its name."""
        if name is not None:
            raise HookError(f"{describe(plugin)} cannot be registered as {name!r}: names come from classes and modules")
        return self.register_all([plugin])[0]

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        """Tell pluggy what it is to know of the attribute `name` of a registration."""
        implementation = plugin.implementations[name]
        return {
            "wrapper": implementation.wrapper,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": implementation.tryfirst,
            "trylast": implementation.trylast,
            "specname": None,
        }

    def compile_step(self) -> StepHooks:
        """Return the hooks of the step, compiled; to be called once all plugins are registered.

        If ``TPK_TRACE`` was on when the manager was made, they go through pluggy and are logged to
        ``tpk.trace``.
        """
        return self._traced_step.compile() if self._traced_step else compile_step(self.hook)

    def after_train(self, trainer: Trainer) -> list[BaseException]:
        """Call every `after_train`, whatever happens in the others, and return what they raised.

        Each failure is logged with its traceback.
        """
        failures: list[BaseException] = []
        for registration in call_order(self.hook.after_train):
            try:
                direct(registration.implementations["after_train"])(trainer)
            except BaseException as error:
                note_failure(error, registration.name, "after_train")
                logger.error("after_train of %s failed", registration.name, exc_info=error)
                failures.append(error)
        return failures

    def _replace_registrations(self, plugins: list[_Plugin]) -> None:
        """Register everything anew, so that pluggy calls it in this order.

        pluggy calls first what was registered last; but of those marked `trylast` it calls last what was registered
        last, so these are registered apart.
        """
        for registration in self.get_plugins():
            self.unregister(registration)
        for each in reversed(plugins):
            self._register_part(each, trylast=False)
        for each in plugins:
            self._register_part(each, trylast=True)
        self._plugins = plugins

    def _register_part(self, plugin: _Plugin, *, trylast: bool) -> None:
        implementations = [each for each in plugin.implementations if each.trylast == trylast]
        if implementations:
            step_function = self._traced_step.step_function if self._traced_step else None
            registration = Registration(plugin.name, implementations, step_function)
            super().register(registration, name=f"{plugin.name} (trylast)" if trylast else plugin.name)


def _set_name(callback: Callback, name: str) -> None:
    try:
        callback.name = name
    except AttributeError as error:
        raise HookError(
            f"{name} does not let its `name` be set ({type(error).__name__}), so its `trainer` could not be either: "
            "a callback cannot be frozen"
        ) from error


def _unique_name(base: str, taken: set[str]) -> str:
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}#{number}"
    return name
