"""Checks of method names: a method that looks like a hook, but that nothing would call, is an error."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from tpk.errors import HookError
from tpk.plugin.base import Plugin
from tpk.plugin.callback import CONFIGURATION_HOOKS, HOOK_ARGUMENTS, HOOK_NAMES, Callback

OF_OTHER_FRAMEWORKS = {
    "on_train_begin": "before_train",
    "on_train_start": "before_train",
    "on_fit_start": "before_train",
    "on_train_end": "after_train",
    "on_fit_end": "after_train",
    "on_epoch_begin": "before_epoch",
    "on_epoch_start": "before_epoch",
    "on_train_epoch_start": "before_epoch",
    "on_epoch_end": "trigger_epoch",
    "on_train_epoch_end": "trigger_epoch",
    "on_batch_begin": "before_run",
    "on_train_batch_begin": "before_run",
    "on_train_batch_start": "before_run",
    "on_step_begin": "before_run",
    "on_batch_end": "trigger_step",
    "on_train_batch_end": "trigger_step",
    "on_step_end": "trigger_step",
    "after_create_session": "before_train",
    "on_save_checkpoint": "before_checkpoint",
    "on_exception": "translate_error",
}
"""Hooks of Keras, Lightning and TensorFlow's `SessionRunHook`, and tpk's hook for each."""


def check_names(plugin: object, hooks: Iterable[str] = HOOK_ARGUMENTS) -> None:
    """Check every name that the class or module of `plugin` defines, without evaluating a property.

    Args:
        plugin: an instance, a class or a module.
        hooks: the names of all hooks.

    Raises:
        HookError: if a name is similar to a hook (``befor_run``), or a hook of another framework (``on_epoch_end``,
            tensorpack's ``_before_run``), or a hook that cannot be implemented here; or similar to another method that
            can be overridden (``proces_scalar`` of a monitor).
    """
    owner, namespaces = describe(plugin), namespaces_of(plugin)
    hooks = {*hooks, "trigger"}
    # A trainer may have methods with similar names: the run does not call them.
    methods = [*hooks, *(() if _is_trainer(plugin) else _methods_of_kind(plugin))]
    # If both `trigger_epoch` and `_trigger_epoch` are defined, the latter is a part of the former.
    parts = {f"_{name}" for names in namespaces for name in names if f"_{name}" in names}
    for namespace in namespaces:
        if str(namespace.get("__module__", "")).startswith("tpk."):  # tpk calls its own methods.
            continue
        for name, value in namespace.items():
            if name in hooks:
                _check_place(plugin, owner, name, value)
            elif name not in parts:
                _check_name(owner, name, value, hooks, methods)


def check_not_lost(plugin: object, methods: Mapping[str, Any]) -> None:
    """Raise a `HookError` if a `plugin` implements no hook although it should."""
    owner = describe(plugin)
    bases = [base.__name__ for base in plugin.__class__.__mro__]
    if "SessionRunHook" in bases and not isinstance(plugin, Callback):
        raise HookError(f"{owner} is a SessionRunHook of TensorFlow: give tpk.HookToCallback({owner}(...)) instead")
    if methods:
        return
    if not isinstance(plugin, Plugin):
        raise HookError(
            f"{plugin!r} implements no hook: derive a callback from tpk.Callback, and decorate the hooks of a plugin "
            "module with @tpk.hookimpl"
        )
    if isinstance(plugin, Callback) and any("__getattr__" in namespace for namespace in namespaces_of(plugin)):
        raise HookError(
            f"{owner} implements no hook: its __getattr__ is not used, because Callback has a method for each hook. "
            "Override hook_implementations() to return the hooks of the object that it forwards to"
        )
    if plugin.kind == "callback":
        raise HookError(
            f"{owner} implements no hook, so nothing would call it: override one of {', '.join(HOOK_NAMES)}, or trigger"
        )


def describe(plugin: object) -> str:
    """Return the name of a plugin in messages: the name of its module or class, without leading underscores."""
    if isinstance(plugin, ModuleType | type):
        return plugin.__name__
    return plugin.__class__.__name__.lstrip("_")


def namespaces_of(plugin: object) -> list[Mapping[str, Any]]:
    """Return the namespaces that define `plugin`: of its module, or of its class and base classes, nearest first.

    `Callback` and `object` are left out. ``plugin.__class__`` sees through proxies.
    """
    if isinstance(plugin, ModuleType):
        return [{name: value for name, value in vars(plugin).items() if _belongs_to(plugin, value)}]
    plugin_class = plugin if isinstance(plugin, type) else plugin.__class__
    return [vars(owner) for owner in plugin_class.__mro__ if owner not in (Callback, Plugin, object)]


def _methods_of_kind(plugin: object) -> list[str]:
    """Return the public methods of the base class of its kind of plugin, such as `process_scalar` of a monitor."""
    plugin_class = plugin if isinstance(plugin, type) else plugin.__class__
    bases = [owner for owner in plugin_class.__mro__ if "kind" in vars(owner)]
    return [
        name for owner in bases for name, value in vars(owner).items() if _is_method(value) and not name.startswith("_")
    ]


def _is_trainer(plugin: object) -> bool:
    plugin_class = plugin if isinstance(plugin, type) else plugin.__class__
    return issubclass(plugin_class, Plugin) and plugin_class.kind == "trainer"


def _belongs_to(module: ModuleType, value: object) -> bool:
    """Whether `value` is a function that `module` defines, or a hook that it imports."""
    return inspect.isfunction(value) and (value.__module__ == module.__name__ or hasattr(value, "tpk_impl"))


def _is_method(value: object) -> bool:
    return isinstance(value, (FunctionType, staticmethod, classmethod))


def _check_place(plugin: object, owner: str, name: str, value: object) -> None:
    if isinstance(value, property):
        raise HookError(f"{owner}.{name} is a property where the hook must be a method")
    # A function of a module may be called `recover` without being a hook.
    if isinstance(plugin, ModuleType) and not hasattr(value, "tpk_impl") and "_" in name:
        raise HookError(f"{owner}.{name} has the name of a hook but is not decorated: add @tpk.hookimpl")
    if _is_trainer(plugin) and name in HOOK_NAMES and name != "setup_graph" and not hasattr(value, "tpk_impl"):
        raise HookError(
            f"{owner} defines {name}, which is a hook: decorate it with @tpk.hookimpl, move it to a tpk.Callback, or "
            "override run_step()"
        )
    if isinstance(plugin, Callback) and name in CONFIGURATION_HOOKS:
        raise HookError(
            f"{owner} is a {plugin.kind} and implements {name}, which is called before {plugin.kind}s are registered: "
            "implement it in a module that is an entry point of the group tpk.plugins"
        )


def _check_name(owner: str, name: str, value: object, hooks: Iterable[str], methods: Iterable[str]) -> None:
    decorated = hasattr(value, "tpk_impl")
    if not decorated and (name in methods or not _is_method(value)):
        return
    underscored = name.startswith("_")
    meant = name[1:] if underscored else name
    # Above 0.88 are typos (`befor_run`, `after_training`), below it names that mean something else (`triggered`).
    nearest = difflib.get_close_matches(meant.lower(), hooks, n=1, cutoff=0.6 if decorated else 0.88)
    if nearest and underscored:
        raise HookError(f"{owner} defines {name}, but tpk's hooks have no underscore: call it {nearest[0]!r}")
    if nearest:
        raise HookError(f"{owner} defines {name}, which is not a hook of tpk: did you mean {nearest[0]!r}?")
    if decorated:
        raise HookError(
            f"{owner} defines {name}, which is not a hook of tpk; the hooks are {', '.join(HOOK_ARGUMENTS)}"
        )
    if name in OF_OTHER_FRAMEWORKS:
        hook = OF_OTHER_FRAMEWORKS[name]
        raise HookError(f"{owner} defines {name}, a hook of other frameworks: tpk's hook is {hook!r}")
    nearest = difflib.get_close_matches(name.lower(), methods, n=1, cutoff=0.88)
    if nearest:
        raise HookError(f"{owner} defines {name}, which nothing calls: did you mean {nearest[0]!r}?")
