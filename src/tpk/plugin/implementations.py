"""Which hooks an object implements, and how, whatever kind of object it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import attrs

from tpk.errors import HookError
from tpk.plugin.callback import Callback
from tpk.plugin.near_miss import check_names, check_not_lost, describe, namespaces_of
from tpk.plugin.spec import HOOK_ARGUMENTS, STEP_HOOKS


@attrs.frozen(eq=False)
class Implementation:
    """One hook as one plugin implements it.

    Attributes:
        hook: the name of the hook.
        method: the function or bound method that is called.
        arguments: those of the hook's arguments that `method` takes, in its own order.
        wrapper: whether it is a generator around all the other implementations.
        tryfirst: whether it is called before those that are not.
        trylast: whether it is called after those that are not.
    """

    hook: str
    method: Callable[..., Any]
    arguments: tuple[str, ...]
    wrapper: bool
    tryfirst: bool
    trylast: bool


def implementations_of(plugin: object) -> list[Implementation]:
    """Return the hooks that `plugin` implements.

    A `Callback` says so itself (`Callback.hook_implementations`). Of a module, the functions decorated by
    ``tpk.hookimpl`` count; of any other object, every method that has the name of a hook.

    Raises:
        HookError: `plugin` implements no hook, or one of its methods does not fit: its name is nearly that of
            a hook, or its arguments or options are not those of the hook.
    """
    if isinstance(plugin, type):
        raise HookError(f"{plugin.__name__} is a class where a plugin is expected: give an instance of it")
    check_names(plugin)
    methods = _methods_of(plugin)
    check_not_lost(plugin, methods)
    return [_implementation(plugin, hook, method) for hook, method in methods.items()]


def _methods_of(plugin: object) -> Mapping[str, Any]:
    if isinstance(plugin, Callback):
        return plugin.hook_implementations()
    if isinstance(plugin, ModuleType):
        (functions,) = namespaces_of(plugin)
        return {name: functions[name] for name in HOOK_ARGUMENTS if name in functions}
    # getattr rather than the class's methods, so that whatever forwards by `__getattr__` keeps its hooks.
    methods = {name: getattr(plugin, name, None) for name in HOOK_ARGUMENTS}
    return {name: method for name, method in methods.items() if inspect.isroutine(method)}


def _implementation(plugin: object, hook: str, method: Any) -> Implementation:
    """Check one implementation against the specification of its hook."""
    where = f"{describe(plugin)}.{hook}"
    if hook not in HOOK_ARGUMENTS:
        raise HookError(f"{where}: tpk has no such hook; the hooks are {', '.join(HOOK_ARGUMENTS)}")
    if not isinstance(method, (FunctionType, MethodType)):
        raise HookError(f"{where} must be a function or a method, but is {method!r}")
    options = _options_of(where, plugin, method)
    _check_kind(where, hook, method, is_wrapper=options["wrapper"])
    return Implementation(hook, method, _arguments_of(where, hook, method), **options)


def _check_kind(where: str, hook: str, method: Callable[..., Any], *, is_wrapper: bool) -> None:
    function = inspect.unwrap(method)
    if is_wrapper and hook in STEP_HOOKS:
        raise HookError(f"{where} cannot be a wrapper, since the step is compiled: implement it without wrapper=True")
    if is_wrapper and hook == "after_train":
        raise HookError(f"{where} cannot be a wrapper, since each implementation runs whatever the others do")
    if is_wrapper and not inspect.isgeneratorfunction(function):
        raise HookError(f"{where} is marked wrapper=True, so it needs a `yield` where the others are to run")
    if not is_wrapper and (inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)):
        raise HookError(f"{where} is a generator or coroutine, so calling it would run nothing of it")


def _arguments_of(where: str, hook: str, method: Callable[..., Any]) -> tuple[str, ...]:
    arguments = inspect.signature(method).parameters
    for argument in arguments.values():
        if argument.kind not in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD):
            problem = f"takes {argument}, but hooks are called with positional arguments"
        elif argument.default is not argument.empty:
            problem = f"gives {argument.name!r} a default: it would never be used, or always"
        elif argument.name not in HOOK_ARGUMENTS[hook]:
            problem = f"takes {argument.name!r}, which this hook does not give"
        else:
            continue
        raise HookError(f"{where} {problem}; it may take {', '.join(HOOK_ARGUMENTS[hook])}, or less")
    return tuple(arguments)


def order_of(method: Callable[..., Any]) -> dict[str, bool]:
    """Return where in the order `method`, a bound method of a callback, is called: options for ``tpk.hookimpl``.

    A callback that stands in for another one gives what it calls the same place.

    Example:
        ```python
        @tpk.hookimpl(**order_of(self.wrapped.trigger))
        def trigger_later() -> None: ...
        ```
    """
    options = _options_of(getattr(method, "__qualname__", repr(method)), None, method)
    return {"tryfirst": options["tryfirst"], "trylast": options["trylast"]}


def _options_of(where: str, plugin: object, method: Callable[..., Any]) -> dict[str, bool]:
    """Return the options of ``@tpk.hookimpl`` that `method` has.

    An override without decorator keeps the place that the nearest decorated definition has: whoever refines a
    callback that must come last need not know that it must.
    """
    definitions = [method, *_definitions_of(plugin, method)]
    options: Mapping[str, Any] = next((each.tpk_impl for each in definitions if hasattr(each, "tpk_impl")), {})
    if options.get("hookwrapper") or options.get("optionalhook") or options.get("specname"):
        raise HookError(f"{where}: of the options of hookimpl, tpk has wrapper, tryfirst and trylast")
    if options.get("tryfirst") and options.get("trylast"):
        raise HookError(f"{where} asks to be called both first and last")
    own = any(hasattr(each, "tpk_impl") for each in definitions[:2])
    return {
        "wrapper": own and bool(options["wrapper"]),
        "tryfirst": bool(options.get("tryfirst")),
        "trylast": bool(options.get("trylast")),
    }


def _definitions_of(plugin: object, method: Callable[..., Any]) -> list[Any]:
    """Return what defines `method` in its class and the classes above, nearest first."""
    # What wraps another callback leads on, by `functools.wraps`, to the method of the wrapped one.
    while not isinstance(method, MethodType) and hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    owner = method.__self__ if isinstance(method, MethodType) else plugin
    # `trigger` is what `trigger_epoch` does, so they have one place in the order.
    names = {"trigger": ("trigger", "trigger_epoch"), "trigger_epoch": ("trigger_epoch", "trigger")}
    name = getattr(method, "__name__", "")
    return [
        namespace[each] for namespace in namespaces_of(owner) for each in names.get(name, (name,)) if each in namespace
    ]
