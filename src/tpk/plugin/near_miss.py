"""Refuse what looks like a hook and would never be called: silence is how hooks are lost."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from tpk.errors import HookError
from tpk.plugin.callback import Callback
from tpk.plugin.spec import CONFIGURATION_HOOKS, HOOK_ARGUMENTS

METHODS = (*HOOK_ARGUMENTS, "trigger")
"""What a plugin may mean to implement: the hooks, and `trigger`, which stands for ``trigger_epoch``."""


def check_names(plugin: object) -> None:
    """Look at every name that the class or module of `plugin` defines, without touching a property.

    Raises:
        HookError: one of them is nearly the name of a hook (``befor_run``), or is tensorpack's
            (``_before_run``), or is a hook that cannot be implemented in this place or in this way.
    """
    owner = describe(plugin)
    namespaces = namespaces_of(plugin)
    # Whoever defines both `trigger_epoch` and `_trigger_epoch` means the latter as a part of the former.
    parts = {f"_{name}" for names in namespaces for name in names if f"_{name}" in names}
    for namespace in namespaces:
        for name, value in namespace.items():
            if name in METHODS:
                _check_place(plugin, owner, name, value)
            elif name not in parts:
                _check_name(owner, name, value)


def check_not_lost(plugin: object, methods: Mapping[str, Any]) -> None:
    """Refuse a `plugin` that implements nothing, where that cannot be what its author wants."""
    owner = describe(plugin)
    bases = [base.__name__ for base in plugin.__class__.__mro__]
    if "SessionRunHook" in bases and not isinstance(plugin, Callback):
        raise HookError(f"{owner} is a SessionRunHook of TensorFlow: give tpk.HookToCallback({owner}(...)) instead")
    if methods:
        return
    if not isinstance(plugin, Callback):
        raise HookError(
            f"{plugin!r} implements no hook: a callback derives from tpk.Callback, and the hooks of a plugin "
            "module are functions decorated by @tpk.hookimpl"
        )
    if any("__getattr__" in namespace for namespace in namespaces_of(plugin)):
        raise HookError(
            f"{owner} implements no hook: its __getattr__ is never asked, since Callback itself has a method "
            "for each hook. Override hook_implementations() to return the hooks of what it forwards to"
        )


def describe(plugin: object) -> str:
    """Return what to call `plugin` in a message: its module's name, or its class's."""
    return plugin.__name__ if isinstance(plugin, ModuleType) else plugin.__class__.__name__


def namespaces_of(plugin: object) -> list[Mapping[str, Any]]:
    """Return what defines `plugin`: its module, or its class and the classes above, nearest first.

    `Callback` and `object` are left out. Asking for ``plugin.__class__`` sees through proxies.
    """
    if isinstance(plugin, ModuleType):
        return [{name: value for name, value in vars(plugin).items() if _belongs_to(plugin, value)}]
    plugin_class = plugin if isinstance(plugin, type) else plugin.__class__
    return [vars(owner) for owner in plugin_class.__mro__ if owner not in (Callback, object)]


def _belongs_to(module: ModuleType, value: object) -> bool:
    """Whether `value` is a function that `module` defines, or that it imports as a hook of its own."""
    return inspect.isfunction(value) and (value.__module__ == module.__name__ or hasattr(value, "tpk_impl"))


def _check_place(plugin: object, owner: str, name: str, value: object) -> None:
    if isinstance(value, property):
        raise HookError(f"{owner}.{name} is a property where the hook must be a method")
    if isinstance(plugin, ModuleType) and not hasattr(value, "tpk_impl"):
        raise HookError(f"{owner}.{name} has the name of a hook but is not decorated: add @tpk.hookimpl")
    if isinstance(plugin, Callback) and name in CONFIGURATION_HOOKS:
        raise HookError(
            f"{owner} is a callback and implements {name}, which is called before callbacks are registered: "
            "implement it in a module that is an entry point of the group tpk.plugins"
        )


def _check_name(owner: str, name: str, value: object) -> None:
    decorated = hasattr(value, "tpk_impl")
    if not decorated and (hasattr(Callback, name) or not isinstance(value, (FunctionType, staticmethod, classmethod))):
        return
    underscored = name.startswith("_")
    meant = name[1:] if underscored else name
    # Below 0.88 are names that mean something else (`triggered`), above it slips (`befor_run`,
    # `after_training`).
    nearest = difflib.get_close_matches(meant.lower(), METHODS, n=1, cutoff=0.6 if decorated else 0.88)
    if nearest and underscored:
        raise HookError(f"{owner} defines {name}, but tpk's hooks have no underscore: call it {nearest[0]!r}")
    if nearest:
        raise HookError(f"{owner} defines {name}, which is no hook of tpk: did you mean {nearest[0]!r}?")
    if decorated:
        raise HookError(f"{owner} defines {name}, which is no hook of tpk; the hooks are {', '.join(HOOK_ARGUMENTS)}")
