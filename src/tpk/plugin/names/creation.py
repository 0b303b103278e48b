"""Descriptions of plugins in plain data (`use`), and the step from there to an instance."""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import Any

import attrs

from tpk.errors import PluginError, add_note
from tpk.plugin.names.spellings import respelled


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
