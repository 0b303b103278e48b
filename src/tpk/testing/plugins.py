"""Rules that plugins of all kinds owe: how they are made, how they are described, which hooks they have."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import tensorflow as tf

from tpk.errors import HookError
from tpk.plugin.hooks.implementations import implementations_of
from tpk.plugin.options import options_of
from tpk.testing.leftovers import watching
from tpk.testing.rules import Broken, Rules
from tpk.testing.trainings import check_same, flat

Plugin = TypeVar("Plugin")


class Making(Generic[Plugin]):
    """What makes plugins to check, each time a new one.

    Args:
        make: what makes them.
        base: the class that they must have.
    """

    def __init__(self, make: Callable[[], Plugin], base: type) -> None:
        self._make, self._base = make, base
        self._name = getattr(make, "__name__", repr(make))

    @property
    def owner(self) -> str:
        """What to call the plugin in messages."""
        return self._name

    def __call__(self) -> Plugin:
        """Make one.

        Raises:
            Broken: if it is not of this kind.
        """
        made = self._make()
        if not isinstance(made, self._base):
            hint = " (give a function: lambda: MyPlugin(...))" if isinstance(made, type) else ""
            raise Broken(f"a function that returns a new tpk.{self._base.__name__}", f"{made!r}{hint}")
        self._name = type(made).__name__
        return made


def add_rules_of_all_kinds(rules: Rules[Any], plugin: str) -> None:
    """Add the rules of all plugins to those of one kind; a case has its `Making` as ``make``.

    Args:
        rules: the rules of the kind.
        plugin: what one is called.
    """

    @rules.rule(
        "constructs-plainly",
        f"to make a {plugin} opens nothing, starts nothing, and adds nothing to a graph",
        "tpk.Trainer; move it to setup_graph, or to before_train",
    )
    def _constructs_plainly(case: Any) -> None:
        with tf.Graph().as_default() as graph, watching() as leftovers:
            first, second = case.make(), case.make()
        added = [op.name for op in graph.get_operations()]
        if added:
            raise Broken("no op in the graph", f"the ops {', '.join(added[:5])}")
        leftovers.check("its constructor")
        if first is second:
            raise Broken("a new one each time: each training has its own", "the same object twice")

    @rules.rule(
        "hooks-fit",
        f"each method of a {plugin} that looks like a hook is one, with arguments that it has",
        "tpk.plugin, and tpk.Callback for each hook",
    )
    def _hooks_fit(case: Any) -> None:
        try:
            implementations_of(case.make())
        except HookError as error:
            raise Broken("hooks as they are specified", str(error)) from error

    @rules.rule(
        "options-are-plain",
        "what it was made with stands in config.json, the same in each run",
        "tpk.plugin.options",
    )
    def _options_are_plain(case: Any) -> None:
        first, second = options_of(case.make()), options_of(case.make())
        json.dumps(first, allow_nan=False)
        check_same("the same options of two that are made alike", flat(first), flat(second))
