"""The marker of hook specifications, and the hooks that are called before there is a trainer.

The hooks of a training are methods of `tpk.Callback`. Modules and objects of the entry-point group ``tpk.plugins``
implement any hook with functions decorated by `tpk.hookimpl`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pluggy

from tpk.errors import HookError

hookspec = pluggy.HookspecMarker("tpk")
"""Marks a hook specification: a method of a class that is given to `HookManager.add_hookspecs`."""


class ConfigurationSpecs:
    """Before there is a trainer: for ``tpk.plugins`` only, since no callback is registered yet."""

    @hookspec
    def tpk_add_hookspecs(self, hooks: Any) -> None:
        """Add hooks of one's own, which the callbacks of a training may then implement.

        Called when the plugin is registered, before anything else is. A callback implements such a hook by a method of
        its name; it is called by ``trainer.hooks.hook.<name>(...)``, with keyword arguments.

        Args:
            hooks: the `HookManager` of a training.

        Example:
            ```python
            class EpisodeSpecs:
                @tpk.hookspec
                def after_episode(self, reward):
                    "Called at the end of each episode."

            @tpk.hookimpl
            def tpk_add_hookspecs(hooks):
                hooks.add_hookspecs(EpisodeSpecs)
            ```
        """

    @hookspec
    def tpk_configure(self, config: Any) -> None:
        """Adjust the config of a run, before anything in it is resolved.

        Args:
            config: the `TrainConfig` as the user wrote it; change its attributes in place.

        Example:
            ```python
            @tpk.hookimpl
            def tpk_configure(config):
                if config.run_dir is None:
                    config.run_dir = f"/scratch/{os.environ['USER']}/runs"
            ```
        """

    @hookspec
    def tpk_default_callbacks(self, config: Any) -> list[Any]:  # type: ignore[empty-body]
        """Give callbacks that every run shall have, besides those that the user lists.

        Args:
            config: the `TrainConfig` of the run, already configured.

        Returns:
            A list of callbacks, each in any form that stands for one: an instance, a class, a name,
            ``"module:attr"`` or `tpk.use(...)`.

        Example:
            ```python
            @tpk.hookimpl
            def tpk_default_callbacks(config):
                return [tpk.use("RunOp", op="heartbeat")]
            ```
        """


def arguments_of_specs(specs: object) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each hook that a class or module of specifications declares, by its name."""
    skipped = 1 if inspect.isclass(specs) else 0
    return {
        name: tuple(inspect.signature(function).parameters)[skipped:]
        for name, function in vars(specs).items()
        if hasattr(function, "tpk_spec")
    }


def taken_arguments(where: str, given: Sequence[str], method: Callable[..., Any]) -> tuple[str, ...]:
    """Return which of the arguments that a hook gives an implementation takes, in its own order.

    Args:
        where: what implements it, for messages.
        given: what the hook gives.
        method: the implementation, bound if it is a method.

    Raises:
        HookError: it takes others, or does not take them as the hook gives them.
    """
    arguments = inspect.signature(method).parameters
    for argument in arguments.values():
        if argument.kind not in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD):
            problem = f"takes {argument}, but hooks are called with positional arguments"
        elif argument.default is not argument.empty:
            problem = f"gives {argument.name!r} a default: it would never be used, or always"
        elif argument.name not in given:
            problem = f"takes {argument.name!r}, which this hook does not give"
        else:
            continue
        raise HookError(f"{where} {problem}; it may take {', '.join(given) or 'none'}, or less")
    return tuple(arguments)


def taking_all(method: Callable[..., Any], taken: Sequence[str], given: Sequence[str]) -> Callable[..., Any]:
    """Return a function of all that a hook gives: the very `method`, if it takes all of it, in the same order."""
    if tuple(taken) == tuple(given):
        return method
    if not taken:
        return lambda *_: method()
    positions = [given.index(argument) for argument in taken]
    return lambda *arguments: method(*[arguments[position] for position in positions])
