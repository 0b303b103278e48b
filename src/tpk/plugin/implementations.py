"""Implementations of hooks: which hooks an object implements, and how."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import attrs

from tpk.errors import HookError
from tpk.plugin.callback import HOOK_ARGUMENTS, STEP_HOOKS, Callback, Plugin
from tpk.plugin.hook_names import check_names, check_not_lost, describe, namespaces_of
from tpk.plugin.hookspecs import taken_arguments


@attrs.frozen(eq=False)
class Implementation:
    """One hook as one plugin implements it.

    Attributes:
        plugin: the plugin.
        hook: the name of the hook.
        method: the function or bound method that is called.
        wrapper: whether it is a generator that wraps all other implementations.
        place: -1 if it is called before the others, 1 if it is called after them, else 0.
    """

    plugin: object
    hook: str
    method: Callable[..., Any]
    wrapper: bool
    place: int


def implementations_of(plugin: object, hooks: Mapping[str, tuple[str, ...]] = HOOK_ARGUMENTS) -> list[Implementation]:
    """Return the hooks that `plugin` implements.

    For a `Callback`, these are its `Callback.hook_implementations`, and methods that implement hooks of third parties.
    For a module or a trainer, the functions decorated with ``tpk.hookimpl``; for another object, every method with the
    name of a hook.

    Args:
        plugin: a callback, a monitor, a strategy, a module, or another object.
        hooks: the arguments of each hook, by name.

    Raises:
        HookError: if `plugin` implements no hook, or a method does not fit: its name is similar to a hook, or its
            arguments or options do not fit.
    """
    if isinstance(plugin, type):
        raise HookError(f"{plugin.__name__} is a class, not a plugin: pass an instance of it")
    check_names(plugin, hooks)
    methods = _methods_of(plugin, hooks)
    check_not_lost(plugin, methods)
    return [_implementation(plugin, hook, method, hooks) for hook, method in methods.items()]


def check_class(plugin_class: type) -> None:
    """Check the hooks of a class without an instance of it.

    Raises:
        HookError: as `implementations_of` does.
    """
    check_names(plugin_class)
    for hook in HOOK_ARGUMENTS:
        function = getattr(plugin_class, hook, None)
        if isinstance(function, FunctionType) and function is not getattr(Callback, hook, None):
            _implementation(plugin_class, hook, MethodType(function, plugin_class), HOOK_ARGUMENTS)


def _methods_of(plugin: object, hooks: Mapping[str, tuple[str, ...]]) -> Mapping[str, Any]:
    if isinstance(plugin, Callback):
        defined = {name for namespace in namespaces_of(plugin) for name in namespace}
        added = {name: getattr(plugin, name) for name in hooks if name not in HOOK_ARGUMENTS and name in defined}
        return {**plugin.hook_implementations(), **added}
    if isinstance(plugin, ModuleType | Plugin):
        marked = {name for names in namespaces_of(plugin) for name in hooks if hasattr(names.get(name), "tpk_impl")}
        return {name: getattr(plugin, name) for name in hooks if name in marked}
    # getattr instead of the methods of the class, so that an object may forward hooks by `__getattr__`.
    methods = {name: getattr(plugin, name, None) for name in hooks}
    return {name: method for name, method in methods.items() if inspect.isroutine(method)}


def _implementation(plugin: object, hook: str, method: Any, hooks: Mapping[str, tuple[str, ...]]) -> Implementation:
    """Check one implementation against the specification of its hook."""
    where = f"{describe(plugin)}.{hook}"
    if hook not in hooks:
        raise HookError(f"{where}: unknown hook; the hooks are {', '.join(hooks)}")
    if not isinstance(method, (FunctionType, MethodType)):
        raise HookError(f"{where} must be a function or a method, but is {method!r}")
    options = _options_of(where, plugin, method)
    _check_kind(where, hook, method, is_wrapper=options["wrapper"])
    taken_arguments(where, hooks[hook], method)
    return Implementation(plugin, hook, method, options["wrapper"], options["trylast"] - options["tryfirst"])


def _check_kind(where: str, hook: str, method: Callable[..., Any], *, is_wrapper: bool) -> None:
    function = inspect.unwrap(method)
    if is_wrapper and hook in (*STEP_HOOKS, "after_train"):
        raise HookError(f"{where} cannot be a wrapper: the hooks of a step and after_train cannot be wrapped")
    if is_wrapper and not inspect.isgeneratorfunction(function):
        raise HookError(f"{where} is marked wrapper=True, so it needs a `yield` where the other implementations run")
    if not is_wrapper and (inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)):
        raise HookError(f"{where} is a generator or coroutine, so calling it would not run it")


def order_of(method: Callable[..., Any]) -> dict[str, bool]:
    """Return the place of a bound method of a callback in the call order, as options for ``tpk.hookimpl``.

    A callback that wraps another one uses it to keep that place.

    Example:
        ```python
        @tpk.hookimpl(**order_of(self.wrapped.trigger))
        def trigger_later(trainer): ...
        ```
    """
    options = _options_of(getattr(method, "__qualname__", repr(method)), None, method)
    return {"tryfirst": options["tryfirst"], "trylast": options["trylast"]}


def _options_of(where: str, plugin: object, method: Callable[..., Any]) -> dict[str, bool]:
    """Return the options of ``@tpk.hookimpl`` of a method.

    An override without the decorator keeps the place of the nearest decorated definition, so a subclass of a callback
    that must come last need not know about it.
    """
    definitions = [method, *_definitions_of(plugin, method)]
    options: Mapping[str, Any] = next((each.tpk_impl for each in definitions if hasattr(each, "tpk_impl")), {})
    if options.get("hookwrapper") or options.get("optionalhook") or options.get("specname"):
        raise HookError(f"{where}: of the options of hookimpl, tpk supports wrapper, tryfirst and trylast")
    if options.get("tryfirst") and options.get("trylast"):
        raise HookError(f"{where} is marked both tryfirst and trylast")
    own = any(hasattr(each, "tpk_impl") for each in definitions[:2])
    return {
        "wrapper": own and bool(options["wrapper"]),
        "tryfirst": bool(options.get("tryfirst")),
        "trylast": bool(options.get("trylast")),
    }


def _definitions_of(plugin: object, method: Callable[..., Any]) -> list[Any]:
    """Return the definitions of `method` in its class and base classes, nearest first."""
    # A wrapper made with `functools.wraps` leads to the method that it wraps.
    while not isinstance(method, MethodType) and hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    owner = method.__self__ if isinstance(method, MethodType) else plugin
    # `trigger_epoch` calls `trigger`, so they have one place in the order.
    names = {"trigger": ("trigger", "trigger_epoch"), "trigger_epoch": ("trigger_epoch", "trigger")}
    name = getattr(method, "__name__", "")
    return [
        namespace[each] for namespace in namespaces_of(owner) for each in names.get(name, (name,)) if each in namespace
    ]
