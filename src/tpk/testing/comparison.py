"""Comparison of values, bit for bit, and the error of a rule that is broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tpk.text import shorten

_MOST_DIFFERENCES = 3
_LONGEST_VALUE = 100
_MISSING = object()


class Broken(Exception):
    """Raised by a rule that is broken.

    Args:
        expected: what the rule expected.
        found: what it found.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected, self.found = expected, found


def check_same(
    what: str, expected: Mapping[str, Any], found: Mapping[str, Any], again: Mapping[str, Any] | None = None
) -> None:
    """Check that two mappings hold the same values; see `difference`.

    Args:
        what: what `found` should be, for the message.
        expected: the expected values.
        found: the values found.
        again: see `difference`.

    Raises:
        Broken: if they differ.
    """
    problem = difference(expected, found, again)
    if problem:
        raise Broken(what, problem)


def difference(expected: Mapping[str, Any], found: Mapping[str, Any], again: Mapping[str, Any] | None = None) -> str:
    """Describe how two mappings of names to values differ, bit for bit; return an empty string if they are the same.

    Args:
        expected: the expected values.
        found: the values found.
        again: the expected values of a second run. Names whose values differ there, such as times, are not compared.
    """
    names = [name for name in {**expected, **found} if again is None or _same(expected, again, name)]
    wrong = [name for name in names if not _same(expected, found, name)]
    shown = [f"{name} is {_shown(found, name)} rather than {_shown(expected, name)}" for name in wrong]
    rest = len(wrong) - _MOST_DIFFERENCES
    return "; ".join(shown[:_MOST_DIFFERENCES]) + (f"; and {rest} more" if rest > 0 else "")


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the values in nested mappings and lists, each by its path."""
    if isinstance(value, Mapping):
        parts = [flat(item, f"{path}[{key!r}]") for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [flat(item, f"{path}[{index}]") for index, item in enumerate(value)]
    else:
        return {path: value}
    return {key: item for part in parts for key, item in part.items()}


def _same(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    first, second = one.get(name, _MISSING), other.get(name, _MISSING)
    if isinstance(first, np.ndarray | np.generic) and isinstance(second, np.ndarray | np.generic):
        return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())
    return type(first) is type(second) and repr(first) == repr(second)


def _shown(values: Mapping[str, Any], name: str) -> str:
    return "missing" if name not in values else shorten(" ".join(repr(values[name]).split()), _LONGEST_VALUE)
