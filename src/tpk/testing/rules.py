"""Rules of a kind of plugins: each is checked by a function, in order; the first that is broken ends the check."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

import attrs

from tpk.errors import ConfigError, TpkError

Case = TypeVar("Case")


class ConformanceError(TpkError, AssertionError):
    """A plugin breaks a rule of its kind; the message says which, what was expected and found, and where to read.

    Cure:
        Read the paragraph that the message names, and change the plugin; ``tpk plugins new`` writes one of each kind
        that keeps all rules.
    """


class Broken(Exception):
    """Raised by the check of a rule that is broken.

    Args:
        expected: what should have been found.
        found: what was found.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected, self.found = expected, found


@attrs.frozen
class Rule(Generic[Case]):
    """What a plugin owes.

    Attributes:
        name: what it is called in `skip`.
        promise: what it says, in one sentence.
        documented: where to read about it.
        check: raises `Broken` if the case breaks it; any other error means that, too.
    """

    name: str
    promise: str
    documented: str
    check: Callable[[Case], None]


class Rules(Generic[Case]):
    """The rules of one kind of plugins, in the order in which they are checked.

    Args:
        kind: what the plugins are, such as ``"callbacks"``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._rules: list[Rule[Case]] = []

    @property
    def names(self) -> list[str]:
        """What the rules are called."""
        return [rule.name for rule in self._rules]

    def rule(
        self, name: str, promise: str, documented: str
    ) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
        """Return a decorator that makes a function the check of a new rule."""

        def add(check: Callable[[Case], None]) -> Callable[[Case], None]:
            self._rules.append(Rule(name, promise, documented, check))
            return check

        return add

    def check(self, case: Case, owner: Callable[[], str], skip: Collection[str] = ()) -> list[str]:
        """Check the rules of a case.

        Args:
            case: what the checks are given.
            owner: returns what to call the plugin in messages.
            skip: the names of rules that are not checked.

        Returns:
            The names of the rules that were checked.

        Raises:
            ConformanceError: if one is broken.
            ConfigError: if there is no rule of a name in `skip`.
        """
        unknown = [name for name in skip if name not in self.names]
        if isinstance(skip, str) or unknown:
            raise ConfigError(f"skip={skip!r}: expected a list of rules of {self.kind}: {', '.join(self.names)}.")
        checked = [rule for rule in self._rules if rule.name not in skip]
        for rule in checked:
            try:
                rule.check(case)
            except Broken as broken:
                raise self._error(rule, owner(), broken.expected, broken.found) from broken.__cause__
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
                notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
                raise self._error(rule, owner(), "no error", found + notes) from error
        return [rule.name for rule in checked]

    def _error(self, rule: Rule[Any], owner: str, expected: str, found: str) -> ConformanceError:
        return ConformanceError(
            f"{owner} breaks the rule {rule.name!r} of {self.kind}: {rule.promise}.\n"
            f"  expected: {expected}\n"
            f"  found: {found}\n"
            f"  read: {rule.documented}\n"
            f"  (skip={[rule.name]!r} leaves this rule out.)"
        )
