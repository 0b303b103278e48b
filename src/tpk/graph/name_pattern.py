"""Variables chosen by a regular expression for their names."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

from tpk.errors import ConfigError
from tpk.graph.variables import variable_name

logger = logging.getLogger(__name__)


class NamePattern:
    """A regular expression that matches the *whole* names of variables inside their tower.

    Args:
        regex: the regular expression.
        user: what uses it, for messages.

    Raises:
        ConfigError: if it is invalid.
    """

    def __init__(self, regex: str, user: str) -> None:
        self._user = user
        try:
            self._regex = re.compile(regex)
        except (re.error, TypeError) as error:
            raise ConfigError(f"{user}: {regex!r} is no regular expression: {error}.") from error

    def matches(self, variable: Any) -> bool:
        """Whether the name of `variable` matches."""
        return self._regex.fullmatch(name_in_tower(variable)) is not None

    def warn_unless_any(self, variables: Iterable[Any]) -> None:
        """Warn if none of `variables` matches; it names them."""
        candidates = list(variables)
        if not any(map(self.matches, candidates)):
            names = ", ".join(map(name_in_tower, candidates))
            logger.warning(
                "%s: %r matches the whole name of no variable (there are %s)",
                self._user,
                self._regex.pattern,
                names or "none",
            )


def name_in_tower(variable: Any) -> str:
    """Return the name of `variable` without that of the tower whose own it is."""
    # No scope of a model is called so; see the rules of tower functions.
    return re.sub(r"^tower\d+/", "", variable_name(variable))
