"""Descriptions of plugins and their options (`use`), and how instances are created from them."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import attrs

from tpk.errors import PluginError, PluginImportError, UnknownOptionError, noting
from tpk.text import nearest


@attrs.frozen(repr=False)
class Use:
    """The name of a plugin and the options to create it with.

    Attributes:
        name: a name of the catalog, or ``"module:attr"``.
        options: the keyword arguments of the class or factory.
        origin: the place in a file where it is written, for messages; empty in code.
    """

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    options: dict[str, Any] = attrs.field(factory=dict, converter=dict)
    origin: str = attrs.field(default="", eq=False)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"use({self.name!r}{options})"


@attrs.frozen
class Ref:
    """A function or another object by name, which is an option itself instead of being called to create one.

    Attributes:
        target: ``"module:attr"``.
    """

    target: str = attrs.field(validator=attrs.validators.matches_re(r"[^:]+:[^:]+"))


def use(name: str, /, **options: Any) -> Use:
    """Describe a plugin by its name and options, wherever a plugin is expected.

    Nothing is imported, and `options` are not checked, until a trainer is set up. The model and the data of a
    `TrainConfig`, and options of other plugins, can be described in the same way.

    Args:
        name: a name of the catalog (see ``tpk plugins``), or ``"module:attr"``.
        options: the keyword arguments of the plugin's class or factory. A ``use("module:attr", ...)`` among them, or
            nested in one of them, is created first.

    Returns:
        A frozen value that compares equal to another one with the same name and options.

    Example:
        ```python
        TrainConfig(..., callbacks=[tpk.use("ModelSaver", max_to_keep=3)], monitors=["ScalarPrinter"])
        TrainConfig(model="my_model:Model", dataflow=tpk.use("my_data:train", batch=32))
        ```
    """
    return Use(name, options)


def create(target: Any, options: dict[str, Any], what: str, origin: str = "") -> Any:
    """Create a plugin.

    Args:
        target: a class or factory, which is called with `options`; or the plugin itself.
        options: keyword arguments.
        what: the name of the plugin in messages.
        origin: the place in a file where it is written, if any.

    Raises:
        PluginError: if `target` does not take these options.
        UnknownOptionError: if an option has another name in tpk; the message has it.
    """
    options = check_options(target, options, what)
    if not _is_made(target):
        return target
    with noting(f"while creating {what}{f', of {origin}' if origin else ''}"):
        return target(**options)


def check_options(target: Any, options: dict[str, Any], what: str) -> dict[str, Any]:
    """Return options under the names of the arguments of `target`; see `create`."""
    if not _is_made(target):
        if options:
            raise PluginError(f"{what} is not a class or factory but {target!r}, which takes no options: {options}")
        return options
    function = target.func if isinstance(target, functools.partial) else target
    function = function.__init__ if inspect.isclass(function) else function
    options = _translated(options, getattr(function, _SPELLINGS, ({}, {})), what)
    signature = inspect.signature(target).replace(return_annotation=inspect.Signature.empty)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise PluginError(
            f"{what} cannot be created with {options or 'no options'}: {error}. {_unknown(options, signature)}It takes "
            f"{signature}: pass them as tpk.use(name, option=value), or pass an instance"
        ) from None
    return options


def _is_made(target: Any) -> bool:
    return inspect.isclass(target) or inspect.isroutine(target) or isinstance(target, functools.partial)


def _unknown(options: dict[str, Any], signature: inspect.Signature) -> str:
    """Return a sentence about each unknown option, with the nearest known ones."""
    if any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        return ""
    unknown = sorted(options.keys() - signature.parameters.keys())
    return "".join(f"It has no option {name!r}.{nearest(name, signature.parameters, n=1)} " for name in unknown)


T = TypeVar("T", bound=Callable[..., Any])

_SPELLINGS = "__tpk_spellings__"


def also_spelled(same: Mapping[str, str] | None = None, /, **explained: str) -> Callable[[T], T]:
    """Decorate a function or class so that it accepts argument names of other systems, or explains them.

    Its signature, which documentation and type checkers see, stays the same.

    Args:
        same: the arguments by their names in other systems.
        explained: what to write instead of an argument that has no equivalent, for the error.

    Returns:
        A decorator. A call with an explained argument, or with one argument under two names, raises an
        `UnknownOptionError`.

    Example:
        ```python
        @also_spelled({"gpus": "devices"}, use_nccl="write mode='nccl' for it.")
        def build(devices, mode="auto"): ...


        build(gpus=2)  # is build(devices=2)
        ```
    """

    def decorate(target: T) -> T:
        function: Any = target.__init__ if inspect.isclass(target) else target
        inherited_same, inherited_explained = getattr(function, _SPELLINGS, ({}, {}))
        spellings = ({**inherited_same, **(same or {})}, {**inherited_explained, **explained})
        what = f"{target.__name__}()"

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            return function(*args, **_translated(options, spellings, what))

        setattr(call, _SPELLINGS, spellings)
        if not inspect.isclass(target):
            return cast("T", call)
        target.__init__ = call  # type: ignore[method-assign]
        return target

    return decorate


def _translated(
    options: Mapping[str, Any], spellings: tuple[Mapping[str, str], Mapping[str, str]], what: str
) -> dict[str, Any]:
    same, explained = spellings
    translated = dict(options)
    for theirs in options.keys() & (same.keys() | explained.keys()):
        if theirs in explained:
            raise UnknownOptionError(f"{what} takes no {theirs}=: {explained[theirs]}")
        own = same[theirs]
        if own in translated:
            raise UnknownOptionError(f"{what} was given {own}= and {theirs}=, which mean the same. Write {own}=.")
        translated[own] = translated.pop(theirs)
    return translated


def import_optional(module: str, owner: str, install: str, instead: str = "") -> Any:
    """Import a module of an optional dependency.

    Args:
        module: the full name of the module.
        owner: the name of what needs it, for the message.
        install: the argument of ``pip install``: a package, or an extra of tpk.
        instead: a sentence that says what works without it; empty for none.

    Raises:
        PluginImportError: if it cannot be imported; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        remedy = f"pip install {install}.{f' {instead}' if instead else ''}"
        raise PluginImportError(f"{owner} needs {package}, which cannot be imported: {remedy}") from error
