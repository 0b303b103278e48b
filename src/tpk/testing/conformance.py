"""Conformance: the rules of a kind of plugin, checked one after the other."""

from __future__ import annotations

import inspect
import json
import logging
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import tensorflow as tf

from tpk.errors import ConfigError, HookError, TpkError
from tpk.plugin.implementations import implementations_of
from tpk.plugin.recorded_options import options_of
from tpk.testing.comparison import Broken, check_same, flat
from tpk.testing.leftovers import leaving_nothing
from tpk.text import some

Plugin = TypeVar("Plugin")

_PREFIX = "rule_"


class ConformanceError(TpkError, AssertionError):
    """A plugin breaks a rule of its kind. The message states the rule, what was expected and found, and where to read.

    Cure:
        Read the documentation that the message names, and change the plugin; ``tpk plugins new`` writes one of each
        kind that keeps all rules.
    """


class Conformance(Generic[Plugin]):
    """Checks a plugin against the rules of its kind.

    Each method ``rule_*`` is a rule. The first paragraph of its docstring states the rule, and the second says where to
    read about it. A plugin breaks the rule if the method raises an error: `Broken`, or any other. Rules are checked in
    the order of their definition, base classes first. Trainings that several rules look at are cached.

    Attributes:
        kinds: what the plugins are called, such as ``"callbacks"``.
        base: the class that the plugins must have.

    Args:
        make: returns a new plugin each time.
        directory: an empty directory for the trainings.
    """

    kinds: ClassVar[str]
    base: ClassVar[type]

    def __init__(self, make: Callable[[], Plugin], directory: Path) -> None:
        self.directory = directory
        self._make = make
        self._owner = getattr(make, "__name__", repr(make))

    @classmethod
    def rules(cls) -> list[str]:
        """Return the names of the rules, in order."""
        methods = dict.fromkeys(name for each in reversed(cls.__mro__) for name in vars(each))
        return [name.removeprefix(_PREFIX).replace("_", "-") for name in methods if name.startswith(_PREFIX)]

    @property
    def copy(self) -> Path:
        """Where the first training is copied to, in the state in which a killed process would leave it."""
        return self.directory / "killed"

    def make(self) -> Plugin:
        """Make a plugin.

        Raises:
            Broken: if the result is not a plugin of this kind.
        """
        made = self._make() if callable(self._make) else self._make
        if made is self._make or not isinstance(made, self.base):
            raise Broken(f"a function that returns a new tpk.{self.base.__name__}: lambda: MyPlugin(...)", repr(made))
        self._owner = type(made).__name__
        return made

    def check(self, skip: Collection[str] = ()) -> list[str]:
        """Check the rules until one is broken, without tpk's log.

        Args:
            skip: the names of rules that are not checked.

        Returns:
            The names of the rules that were checked.

        Raises:
            ConformanceError: if a rule is broken.
            ConfigError: if `skip` names an unknown rule.
        """
        __tracebackhide__ = True
        known = self.rules()
        if isinstance(skip, str) or not set(skip) <= set(known):
            raise ConfigError(f"skip={skip!r}: expected a list of rules of {self.kinds}: {', '.join(known)}.")
        checked = [name for name in known if name not in skip]
        for name in checked:
            self._check_rule(name)
        return checked

    def _check_rule(self, name: str) -> None:
        __tracebackhide__ = True
        rule = getattr(self, _PREFIX + name.replace("-", "_"))
        try:
            with _no_log():
                rule()
        except Broken as broken:
            expected, found, cause = broken.expected, broken.found, broken.__cause__
        except Exception as error:
            notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
            expected, found, cause = "no error", f"{type(error).__name__}: {error}{notes}", error
        else:
            return
        promise, _, documented = (inspect.getdoc(rule) or "").partition("\n\n")
        # The traceback of the cause comes last: it is long, and a chained exception would be printed first.
        raise ConformanceError(
            f"{self._owner} breaks the rule {name!r} of {self.kinds}: {' '.join(promise.split())}\n"
            f"  expected: {expected}\n"
            f"  found: {found}\n"
            f"  read: {' '.join(documented.split())}\n"
            f"  (skip={[name]!r} leaves this rule out.)"
            + ("" if cause is None else "\n\n" + "".join(traceback.format_exception(cause)).rstrip())
        )

    def rule_can_be_made(self) -> None:
        """The given function makes a plugin of this kind.

        tpk.testing: give a class or a function that takes no arguments, such as lambda: MyPlugin(size=3).
        """
        self.make()

    def rule_constructs_plainly(self) -> None:
        """Making a plugin opens nothing, starts nothing, and adds nothing to a graph.

        tpk.Trainer: do it in setup_graph or before_train.
        """
        with tf.Graph().as_default() as graph, leaving_nothing("its constructor"):
            first, second = self.make(), self.make()
        added = [op.name for op in graph.get_operations()]
        if added:
            raise Broken("no op in the graph", f"the ops {some(added)}")
        if first is second:
            raise Broken("a new one each time, because each training has its own", "the same object twice")

    def rule_hooks_fit(self) -> None:
        """Each method that looks like a hook is one, and takes arguments that the hook has.

        tpk.plugin, and tpk.Callback for each hook.
        """
        try:
            implementations_of(self.make())
        except HookError as error:
            raise Broken("hooks as they are specified", str(error)) from error

    def rule_options_are_plain(self) -> None:
        """The options of a plugin are written to config.json, the same in each run.

        tpk.plugin.recorded_options.
        """
        first, second = options_of(self.make()), options_of(self.make())
        json.dumps(first, allow_nan=False)
        check_same("the same options of two that are made alike", flat(first), flat(second))


@contextmanager
def training_fails(error: type[Exception]) -> Iterator[None]:
    """Check that a training within the context raises this error and leaves nothing behind."""
    with leaving_nothing("a training that fails"):
        try:
            yield
        except error:
            return
    raise Broken(f"the {error.__name__} of the step, raised by train()", "a training that ends without an error")


@contextmanager
def _no_log() -> Iterator[None]:
    """Keep tpk's log from the terminal, and from pytest's report: it has some 100 lines a training."""
    log: Any = logging.getLogger("tpk")
    nowhere, propagate = logging.NullHandler(), log.propagate
    log.addHandler(nowhere)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = propagate
        log.removeHandler(nowhere)
