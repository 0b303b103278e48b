"""Hook specifications: their marker and arguments, and the hooks that are called before there is a trainer.

The hooks of a training run are methods of `tpk.Callback`. Modules and objects of the entry-point group ``tpk.plugins``
implement any hook with functions decorated with `tpk.hookimpl`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pluggy

from tpk.errors import HookError

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker("tpk")
"""Marks a hook specification: a method of a class that is passed to `HookManager.add_hookspecs`."""

hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker("tpk")
"""Marks a hook implementation: a function of a module, or a method that is called first, last or around others."""


class ConfigurationSpecs:
    """Hooks that are called before there is a trainer, for modules in the group ``tpk.plugins`` only."""

    @hookspec
    def tpk_add_hookspecs(self, hooks: Any) -> None:
        """Add hooks that callbacks may then implement.

        Called when the plugin is registered, before other plugins are. A callback implements such a hook as a method
        of the same name. Call it with ``trainer.hooks.hook.<name>(...)`` and keyword arguments.

        Args:
            hooks: the `HookManager` of a training run.

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
        """Adjust the config of a run before its names are resolved.

        Args:
            config: the user's `TrainConfig`; change its attributes in place.

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
        """Return callbacks to add to every run.

        Args:
            config: the `TrainConfig` of the run, after `tpk_configure`.

        Returns:
            A list of callbacks, each an instance, a class, a name, ``"module:attr"`` or `tpk.use(...)`.

        Example:
            ```python
            @tpk.hookimpl
            def tpk_default_callbacks(config):
                return [tpk.use("RunOp", op="heartbeat")]
            ```
        """


def arguments_of_specs(specs: object) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each hook that a class or module specifies, by name."""
    skipped = 1 if inspect.isclass(specs) else 0
    return {
        name: tuple(inspect.signature(function).parameters)[skipped:]
        for name, function in vars(specs).items()
        if hasattr(function, "tpk_spec")
    }


def taken_arguments(where: str, given: Sequence[str], method: Callable[..., Any]) -> tuple[str, ...]:
    """Return the arguments of a hook that an implementation takes, in its order.

    Args:
        where: the name of the implementation, for messages.
        given: the arguments of the hook.
        method: the implementation, bound if it is a method.

    Raises:
        HookError: if it takes other arguments, or not as positional ones.
    """
    arguments = inspect.signature(method).parameters
    for argument in arguments.values():
        if argument.kind not in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD):
            problem = f"takes {argument}, but hooks are called with positional arguments"
        elif argument.default is not argument.empty:
            problem = f"gives {argument.name!r} a default, which would be used never or always"
        elif argument.name not in given:
            problem = f"takes {argument.name!r}, which this hook does not pass"
        else:
            continue
        raise HookError(f"{where} {problem}; it may take {', '.join(given) or 'no arguments'}, or fewer")
    return tuple(arguments)


def taking_all(where: str, given: Sequence[str], method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of all arguments of a hook: `method` itself if it takes all of them in the same order.

    The arguments and errors are the same as for `taken_arguments`.
    """
    taken = taken_arguments(where, given, method)
    if taken == tuple(given):
        return method
    if not taken:
        return lambda *_: method()
    positions = [given.index(argument) for argument in taken]
    return lambda *arguments: method(*[arguments[position] for position in positions])
