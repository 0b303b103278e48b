"""The hook manager: the registry of the plugins of a trainer."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable
from types import ModuleType

import pluggy

import tpk
from tpk.errors import HookError, StopTraining
from tpk.plugin.autoload import load_autoloaded
from tpk.plugin.callback import STEP_HOOKS, Callback, Plugin
from tpk.plugin.catalog import get_catalog
from tpk.plugin.environment import is_on
from tpk.plugin.hook_names import check_names, describe
from tpk.plugin.hookspecs import ConfigurationSpecs, arguments_of_specs
from tpk.plugin.implementations import implementations_of
from tpk.plugin.step import (
    Registration,
    StepHooks,
    call_order,
    compile_step,
    direct,
    note_failure,
    raise_stop,
    trace_logger,
    traced,
)

logger = logging.getLogger(__name__)


class HookManager:
    """The registry of the plugins of a trainer, each under a unique name, and of their hooks.

    Plugins are called in the order of registration; methods marked `tryfirst` before all others, and methods marked
    `trylast` after them. Methods with names of `pluggy.PluginManager` do the same as there, but an object is only ever
    the same plugin as itself, not as an equal one.

    Args:
        take_stop: called with a `StopTraining` that a plugin raises, so that the others are still called; raises it by
            default.

    Attributes:
        hook: calls a hook of all plugins: ``hooks.hook.before_epoch(trainer=trainer)``.

    Example:
        ```python
        hooks = HookManager()
        hooks.register_all([ModelSaver(), ScalarPrinter(), ModelSaver()])
        # ["ModelSaver", "ScalarPrinter", "ModelSaver#2"]
        hooks.hook.before_epoch(trainer=trainer)
        step_hooks = hooks.compile_step()
        ```
    """

    def __init__(self, take_stop: Callable[[StopTraining], None] = raise_stop) -> None:
        self._pluggy = pluggy.PluginManager("tpk")
        self._take_stop = take_stop
        self.hook = self._pluggy.hook
        self._arguments: dict[str, tuple[str, ...]] = {}
        for specs in (ConfigurationSpecs, Callback):
            self.add_hookspecs(specs)
        self._plugins: dict[str, object] = {}
        self._registrations: list[Registration] = []
        self._asked_for_specs: list[object] = []
        self._is_autoloaded = False
        self._is_traced = is_on("TPK_TRACE")
        if self._is_traced:
            self._pluggy.trace.root.setwriter(lambda text: trace_logger.info(text.rstrip("\n")))
            self._pluggy.enable_tracing()

    @property
    def plugins(self) -> dict[str, object]:
        """The registered plugins by unique name, in the order of registration."""
        return dict(self._plugins)

    def get_plugin(self, name: str) -> object | None:
        """Return the plugin with this name, or None."""
        return self._plugins.get(name)

    def is_registered(self, plugin: object) -> bool:
        """Return whether this very object is registered."""
        return any(each is plugin for each in self._plugins.values())

    def list_name_plugin(self) -> list[tuple[str, object]]:
        """Return the names and plugins, in the order of registration."""
        return list(self._plugins.items())

    def add_hookspecs(self, module_or_class: ModuleType | type) -> None:
        """Add the hooks of a module or class: its functions that are marked with `tpk.hookspec`.

        Plugins call it in ``tpk_add_hookspecs``.

        Raises:
            HookError: if no function is marked, or a hook exists already.
        """
        added = arguments_of_specs(module_or_class)
        twice = sorted(added.keys() & self._arguments.keys())
        if twice or not added:
            problem = f"adds {', '.join(twice)} again" if twice else "has no function that is marked with @tpk.hookspec"
            raise HookError(f"{describe(module_or_class)} {problem}; specify each hook once, under a unique name")
        self._pluggy.add_hookspecs(module_or_class)
        self._arguments.update(added)

    def autoload(self) -> None:
        """Register the plugins that load without being named, once; see `load_autoloaded`."""
        if not self._is_autoloaded:
            self._is_autoloaded = True
            # All hooks first, so that plugins can implement each other's.
            load_autoloaded(get_catalog(), self.add_specs_of, self.register)

    def check_names(self, plugin: object) -> None:
        """Check the names of a plugin's methods before it is registered.

        Raises:
            HookError: if one of them is nearly the name of a hook, or the name of another framework's hook.
        """
        check_names(plugin, self._arguments)

    def attach(self, trainer: tpk.Trainer) -> None:
        """Give each registered callback its `trainer`, and log the names of the plugins."""
        logger.debug("plugins: %s", ", ".join(self._plugins))
        for plugin in self._plugins.values():
            if isinstance(plugin, Callback):
                plugin.trainer = trainer

    def register(self, plugin: object) -> str:
        """Register one plugin, as `register_all` does; return its name."""
        return self.register_all([plugin])[0]

    def register_all(self, plugins: Iterable[object]) -> list[str]:
        """Register plugins after those registered before; either all of them, or none if one is invalid.

        Args:
            plugins: trainers, strategies, monitors, callbacks, modules or other objects that implement hooks.

        Returns:
            Their unique names: the name of the class or module, with ``#2`` and so on if it is taken. It is also the
            attribute `plugin_name` of a `Callback`.

        Raises:
            HookError: if a plugin is registered already, implements no hook, or implements one that does not fit its
                specification.
        """
        known, registrations = dict(self._plugins), list(self._registrations)
        for plugin in plugins:
            for name, other in known.items():
                if other is plugin:
                    raise HookError(f"{name} is listed twice: an object can be registered only once")
            self.add_specs_of(plugin)
            name = _unique_name(describe(plugin), known)
            known[name] = plugin
            registrations += [
                Registration(name, each, self._take_stop) for each in implementations_of(plugin, self._arguments)
            ]
        added = list(known)[len(self._plugins) :]
        for name in added:
            if isinstance(plugin := known[name], Plugin):
                plugin.plugin_name = name
        self._plugins, self._registrations = known, registrations
        self._register_hooks()
        return added

    def compile_step(self) -> StepHooks:
        """Return the compiled hooks of the step. Call it after all plugins are registered.

        If ``TPK_TRACE`` was on when the manager was created, each call is logged to ``tpk.trace``.
        """
        called = {hook: call_order(getattr(self.hook, hook)) for hook in STEP_HOOKS}
        function_of = traced if self._is_traced else direct
        return compile_step(called, function_of, self._take_stop, lambda error: self.hook.translate_error(error=error))

    def after_train(self, trainer: tpk.Trainer) -> list[BaseException]:
        """Call every `after_train`, even if some fail. Return the failures, which are logged with their tracebacks."""
        failures: list[BaseException] = []
        for registration in call_order(self.hook.after_train):
            try:
                direct(registration)(trainer)
            except BaseException as error:
                note_failure(error, registration.name, "after_train")
                logger.error("after_train of %s failed", registration.name, exc_info=error)
                failures.append(error)
        return failures

    def add_specs_of(self, plugin: object) -> None:
        """Call ``tpk_add_hookspecs`` of a plugin, once."""
        if isinstance(plugin, Plugin) or any(plugin is other for other in self._asked_for_specs):
            return
        self._asked_for_specs.append(plugin)
        add = getattr(plugin, "tpk_add_hookspecs", None)
        if add is not None and (hasattr(add, "tpk_impl") or not isinstance(plugin, ModuleType)):
            add(self)

    def _register_hooks(self) -> None:
        """Register the hooks of all plugins with pluggy, in the order of their calls."""
        before = self._pluggy.get_plugins()
        for registration in before:
            self._pluggy.unregister(registration)
        in_order = sorted(self._registrations, key=lambda each: each.implementation.place)
        # pluggy calls the plugin that was registered last first.
        for registration in reversed(in_order):
            registration.is_moving = registration in before
            self._pluggy.register(registration)
            registration.is_moving = False


def _unique_name(base: str, taken: Collection[str]) -> str:
    names = itertools.chain([base], (f"{base}#{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)
