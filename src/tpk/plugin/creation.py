"""Descriptions of plugins in plain data (`use`), and the step from there to an instance."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import attrs

from tpk.errors import PluginError, PluginImportError, UnknownOptionError, add_note


@attrs.frozen(repr=False)
class Use:
    """A plugin by name, with the options to create it with.

    Attributes:
        name: a name of the catalog, or ``"module:attr"``.
        options: the keyword arguments of the class or factory.
        origin: where it is written, for messages; empty if in code.
    """

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    options: dict[str, Any] = attrs.field(factory=dict, converter=dict)
    origin: str = attrs.field(default="", eq=False)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"use({self.name!r}{options})"


@attrs.frozen
class Ref:
    """What a name leads to, itself: a function, say, that is an option and not called to make one.

    Attributes:
        target: ``"module:attr"``.
    """

    target: str = attrs.field(validator=attrs.validators.matches_re(r"[^:]+:[^:]+"))


def use(name: str, /, **options: Any) -> Use:
    """Name a plugin and give its options, wherever a plugin is expected.

    Nothing is imported, and `options` are not looked at, until a trainer is set up. So the model and the data of a
    `TrainConfig` can be named, and what is an option of something that is named.

    Args:
        name: a name of the catalog (see ``tpk plugins``), or ``"module:attr"``.
        options: the keyword arguments of the plugin's class or factory. What is itself a ``use("module:attr", ...)``
            among them, or in one of them, is made first.

    Returns:
        A frozen value, equal to another one of the same name and options.

    Example:
        ```python
        TrainConfig(..., callbacks=[tpk.use("ModelSaver", max_to_keep=3)], monitors=["ScalarPrinter"])
        TrainConfig(model="my_model:Model", dataflow=tpk.use("my_data:train", batch=32))
        ```
    """
    return Use(name, options)


def create(target: Any, options: dict[str, Any], what: str, origin: str = "") -> Any:
    """Return the plugin that `target` stands for.

    Args:
        target: a class or factory, which is called with `options`; or the plugin itself.
        options: keyword arguments.
        what: what to call it in messages.
        origin: where it is written, if in a file.

    Raises:
        PluginError: `options` are not those that `target` takes.
        UnknownOptionError: one of them has another name in tpk; the message says which.
    """
    options = check_options(target, options, what)
    if not _is_made(target):
        return target
    try:
        return target(**options)
    except Exception as error:
        add_note(error, f"while creating {what}{f', of {origin}' if origin else ''}")
        raise


def check_options(target: Any, options: dict[str, Any], what: str) -> dict[str, Any]:
    """Return options by the names that `target` itself has for them, if it takes them.

    Args:
        target: a class or factory, or the plugin itself, which takes none.
        options: keyword arguments.
        what: what to call it in messages.

    Raises:
        PluginError: `options` are not those that `target` takes.
        UnknownOptionError: one of them has another name in tpk; the message says which.
    """
    if not _is_made(target):
        if options:
            raise PluginError(f"{what} is no class or factory but {target!r}, which takes no options: {options}")
        return options
    options = respelled(target, options, what)
    _check_signature(target, options, what)
    return options


def _is_made(target: Any) -> bool:
    return inspect.isclass(target) or inspect.isroutine(target) or isinstance(target, functools.partial)


def _check_signature(target: Any, options: dict[str, Any], what: str) -> None:
    signature = inspect.signature(target).replace(return_annotation=inspect.Signature.empty)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise PluginError(
            f"{what} cannot be created with {options or 'no options'}: {error}. {_unknown(options, signature)}It takes "
            f"{signature}: give them by tpk.use(name, option=value), or give an instance"
        ) from None


def _unknown(options: dict[str, Any], signature: inspect.Signature) -> str:
    """Return what to say of options that there are not, for which others may have been meant."""
    if any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        return ""
    hints = ""
    for name in sorted(options.keys() - signature.parameters.keys()):
        nearest = difflib.get_close_matches(name, signature.parameters, n=1)
        hints += f"It has no option {name!r}{f'; did you mean {nearest[0]!r}?' if nearest else '.'} "
    return hints


T = TypeVar("T", bound=Callable[..., Any])

_SPELLINGS = "__tpk_spellings__"


def also_spelled(same: Mapping[str, str] | None = None, /, **explained: str) -> Callable[[T], T]:
    """Let a function or a class be called with names of arguments that mean something elsewhere.

    Its signature, which documentation and type checkers see, stays as it is.

    Args:
        same: other names of its own arguments: what is given by one is taken as if it were given by the other.
        explained: names that it takes by no name: what to write instead, for the error.

    Returns:
        What decorates it. A call with an argument that is explained, or that is given by both of its names, raises
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


def respelled(target: Any, options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return options by the names that a function or a class has for them itself.

    Args:
        target: what is about to be called.
        options: keyword arguments for it; the names that it knows nothing of stay as they are.
        what: what to call it in messages.

    Raises:
        UnknownOptionError: something in `options` has another name or form here; the message says which.
    """
    function = target.func if isinstance(target, functools.partial) else target
    function = function.__init__ if inspect.isclass(function) else function
    return _translated(options, getattr(function, _SPELLINGS, ({}, {})), what)


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
    """Import a module that no dependency of tpk brings.

    Args:
        module: its full name.
        owner: who needs it, for the message.
        install: what `pip install` takes: a package, or an extra of tpk.
        instead: what can be done without it, a sentence; empty if nothing can.

    Raises:
        PluginImportError: it cannot be imported; the message says how to install it, the cause is chained.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        remedy = f"pip install {install}.{f' {instead}' if instead else ''}"
        raise PluginImportError(f"{owner} needs {package}, which cannot be imported: {remedy}") from error
