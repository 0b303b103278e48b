"""Checks of method names: a method that looks like a hook, but that nothing would call, is an error."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from tpk.errors import HookError
from tpk.plugin.callback import CONFIGURATION_HOOKS, HOOK_ARGUMENTS, HOOK_NAMES, Callback, Plugin

_THEIRS = {
    "before_train": ("on_train_begin", "on_train_start", "on_fit_start", "after_create_session"),
    "after_train": ("on_train_end", "on_fit_end"),
    "before_epoch": ("on_epoch_begin", "on_epoch_start", "on_train_epoch_start"),
    "trigger_epoch": ("on_epoch_end", "on_train_epoch_end"),
    "before_run": ("on_batch_begin", "on_train_batch_begin", "on_train_batch_start", "on_step_begin"),
    "trigger_step": ("on_batch_end", "on_train_batch_end", "on_step_end"),
    "before_checkpoint": ("on_save_checkpoint",),
    "translate_error": ("on_exception",),
}
OF_OTHER_FRAMEWORKS = {theirs: ours for ours, names in _THEIRS.items() for theirs in names}
"""Hooks of Keras, Lightning and TensorFlow's `SessionRunHook`, and tpk's hook for each."""


def check_names(plugin: object, hooks: Iterable[str] = HOOK_ARGUMENTS) -> None:
    """Check every name that the class or module of `plugin` defines, without evaluating a property.

    Args:
        plugin: an instance, a class or a module.
        hooks: the names of all hooks.

    Raises:
        HookError: if a name is similar to a hook or to another method that can be overridden (``befor_run``;
            ``proces_scalar`` of a monitor), or a hook of another framework (``on_epoch_end``, tensorpack's
            ``_before_run``), or a hook that cannot be implemented here.
    """
    hooks = {*hooks, "trigger"}
    overridable = {*hooks, *_methods_of_kind(plugin)}
    namespaces = namespaces_of(plugin)
    # If both `trigger_epoch` and `_trigger_epoch` are defined, the latter is a part of the former.
    parts = {f"_{name}" for names in namespaces for name in names if f"_{name}" in names}
    # tpk calls its own methods.
    theirs = [names for names in namespaces if not str(names.get("__module__", "")).startswith("tpk.")]
    _check_frameworks(plugin, {name for names in theirs for name, value in names.items() if callable(value)} - hooks)
    for namespace in theirs:
        for name, value in namespace.items():
            if name in hooks:
                _check_place(plugin, name, value)
            elif name not in overridable | parts:
                _check_name(describe(plugin), name, value, overridable)


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
    changes_run = isinstance(plugin, Callback) and type(plugin).configure_run is not Callback.configure_run
    if plugin.kind == "callback" and not changes_run:
        raise HookError(
            f"{owner} implements no hook, so nothing would call it: override one of {', '.join(HOOK_NAMES)}, or "
            "trigger; to forward hooks to another object, override hook_implementations"
        )


def describe(plugin: object) -> str:
    """Return the name of a plugin in messages: the name of its module or class, without leading underscores."""
    if isinstance(plugin, ModuleType | type):
        return plugin.__name__
    return plugin.__class__.__name__.lstrip("_")


def namespaces_of(plugin: object) -> list[Mapping[str, Any]]:
    """Return the namespaces that define `plugin`: of its module, or of its class and base classes, nearest first.

    `Callback` and `object` are left out.
    """
    if isinstance(plugin, ModuleType):
        return [{name: value for name, value in vars(plugin).items() if _belongs_to(plugin, value)}]
    return [vars(owner) for owner in _class_of(plugin).__mro__ if owner not in (Callback, Plugin, object)]


def _class_of(plugin: object) -> type:
    # ``__class__`` sees through proxies.
    return plugin if isinstance(plugin, type) else plugin.__class__


def _methods_of_kind(plugin: object) -> list[str]:
    """Return the public methods of callbacks, monitors or strategies, such as `process_scalar` of a monitor.

    A trainer may have methods with similar names.
    """
    base = next((owner for owner in _class_of(plugin).__mro__ if "kind" in vars(owner)), None)
    return [] if base is None or _is_trainer(plugin) else [name for name in dir(base) if not name.startswith("_")]


def _is_trainer(plugin: object) -> bool:
    return getattr(_class_of(plugin), "kind", None) == "trainer"


def _belongs_to(module: ModuleType, value: object) -> bool:
    """Whether `value` is a function that `module` defines, or a hook that it imports."""
    return inspect.isfunction(value) and (value.__module__ == module.__name__ or hasattr(value, "tpk_impl"))


def _check_place(plugin: object, name: str, value: object) -> None:
    owner, is_marked = describe(plugin), hasattr(value, "tpk_impl")
    # A function of a module may be called `recover` without being a hook.
    if isinstance(plugin, ModuleType) and not is_marked and "_" in name:
        raise HookError(f"{owner}.{name} has the name of a hook but is not decorated: add @tpk.hookimpl")
    if _is_trainer(plugin) and name in HOOK_NAMES and name != "setup_graph" and not is_marked:
        raise HookError(
            f"{owner} defines {name}, which is a hook: decorate it with @tpk.hookimpl, move it to a tpk.Callback, or "
            "override run_step()"
        )
    if isinstance(plugin, Callback) and name in CONFIGURATION_HOOKS:
        raise HookError(
            f"{owner} is a {plugin.kind} and implements {name}, which is called before {plugin.kind}s are registered: "
            "implement it in a module that is an entry point of the group tpk.plugins"
        )


def _check_frameworks(plugin: object, names: Collection[str]) -> None:
    """Raise a `HookError` that lists all hooks of other frameworks among these names, and tpk's hook for each."""
    listed = ", ".join(f"{name} is {ours!r}" for name, ours in OF_OTHER_FRAMEWORKS.items() if name in names)
    if listed:
        raise HookError(f"{describe(plugin)} has hooks of another framework; in a tpk.Callback, {listed}")


def _check_name(owner: str, name: str, value: object, overridable: Iterable[str]) -> None:
    is_marked = hasattr(value, "tpk_impl")
    if not is_marked and not isinstance(value, (FunctionType, staticmethod, classmethod)):
        return
    # Above 0.88 are typos (`befor_run`, `after_training`), below it names that mean something else (`triggered`).
    cutoff = 0.6 if is_marked else 0.88
    nearest = difflib.get_close_matches(name.removeprefix("_").lower(), overridable, n=1, cutoff=cutoff)
    if nearest and name.startswith("_"):
        raise HookError(f"{owner} defines {name}, but tpk's hooks have no underscore: call it {nearest[0]!r}")
    if nearest:
        raise HookError(f"{owner} defines {name}, which nothing calls: did you mean {nearest[0]!r}?")
    if is_marked:
        raise HookError(
            f"{owner} defines {name}, which is not a hook of tpk; the hooks are {', '.join(HOOK_ARGUMENTS)}"
        )
