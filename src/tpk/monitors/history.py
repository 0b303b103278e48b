"""The values that each scalar had over a training."""

from __future__ import annotations

import difflib
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpk.errors import TpkError


class UnknownScalarError(TpkError, KeyError):
    """No scalar of this name was reported so far."""

    __str__ = Exception.__str__  # KeyError's shows the message in quotes, with escapes


class ScalarHistory:
    """Keeps each value of each scalar, with the global step at which it was reported: 16 bytes a value."""

    def __init__(self) -> None:
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}

    @property
    def names(self) -> list[str]:
        """The scalars reported so far, in the order of their first reports."""
        return list(self._steps)

    def add(self, name: str, step: int, value: int | float) -> None:
        """Add a value."""
        if name not in self._steps:
            self._steps[name] = array("q")
            self._values[name] = array("d")
        self._values[name].append(value)
        self._steps[name].append(step)

    def latest(self, name: str) -> float:
        """Return the last value of `name`.

        Raises:
            UnknownScalarError: if there is none.
        """
        self._check(name)
        return self._values[name][-1]

    def of(self, name: str) -> list[tuple[int, float]]:
        """Return the steps and values of `name`, oldest first.

        Raises:
            UnknownScalarError: if there are none.
        """
        self._check(name)
        return list(zip(self._steps[name], self._values[name], strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return everything: for each scalar an array of its steps (``int64``) and one of its values (``float64``)."""
        return {
            name: {"steps": np.array(self._steps[name], np.int64), "values": np.array(self._values[name], np.float64)}
            for name in self._steps
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._steps = {name: array("q", kept["steps"].tolist()) for name, kept in state.items()}
        self._values = {name: array("d", kept["values"].tolist()) for name, kept in state.items()}

    def _check(self, name: str) -> None:
        if name in self._steps:
            return
        nearest = difflib.get_close_matches(name, self._steps, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        known = ", ".join(sorted(self._steps)) or "none"
        raise UnknownScalarError(f"no scalar {name!r} was reported so far.{hint} Reported so far: {known}.")
