"""Descriptions of plugins in plain data (`use`), and the step from there to an instance."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import attrs

from tpk.errors import PluginError, add_note
from tpk.plugin.spellings import respelled


@attrs.frozen(repr=False)
class Use:
    """A plugin by name, with the options to create it with.

    Attributes:
        name: a name of the catalog, or ``"module:attr"``.
        options: the keyword arguments of the class or factory.
    """

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    options: dict[str, Any] = attrs.field(factory=dict, converter=dict)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"use({self.name!r}{options})"


def use(name: str, /, **options: Any) -> Use:
    """Name a plugin and give its options, wherever a plugin is expected.

    Nothing is imported, and `options` are not looked at, until a trainer is set up.

    Args:
        name: a name of the catalog (see ``tpk plugins``), or ``"module:attr"``.
        options: the keyword arguments of the plugin's class or factory.

    Returns:
        A frozen value, equal to another one of the same name and options.

    Example:
        ```python
        TrainConfig(..., callbacks=[tpk.use("ModelSaver", max_to_keep=3)], monitors=["ScalarPrinter"])
        ```
    """
    return Use(name, options)


def create(target: Any, options: dict[str, Any], what: str) -> Any:
    """Return the plugin that `target` stands for.

    Args:
        target: a class or factory, which is called with `options`; or the plugin itself.
        options: keyword arguments.
        what: what to call it in messages.

    Raises:
        PluginError: `options` are not those that `target` takes.
        UnknownOptionError: one of them has another name in tpk; the message says which.
    """
    if not (inspect.isclass(target) or inspect.isroutine(target) or isinstance(target, functools.partial)):
        if options:
            raise PluginError(f"{what} is no class or factory but {target!r}, which takes no options: {options}")
        return target
    options = respelled(target, options, what)
    _check_options(target, options, what)
    try:
        return target(**options)
    except Exception as error:
        add_note(error, f"while creating {what}")
        raise


def _check_options(target: Any, options: dict[str, Any], what: str) -> None:
    signature = inspect.signature(target).replace(return_annotation=inspect.Signature.empty)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise PluginError(
            f"{what} cannot be created with {options or 'no options'}: {error}. It takes {signature}: "
            "give them by tpk.use(name, option=value), or give an instance"
        ) from None
