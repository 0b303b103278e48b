"""Checks of arguments. Each raises a `ConfigError` that names the owner, the argument, and what was expected."""

from __future__ import annotations

import re
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

from tpk.errors import ConfigError


def check_at_least(owner: object, least: int, **numbers: Any) -> None:
    """Raise unless each number is an integer of at least `least`.

    Args:
        owner: the object whose class the message names, or a name.
        least: the smallest valid number.
        numbers: the numbers by argument name; for optional ones, see `given`.
    """
    for name, number in numbers.items():
        is_integer = isinstance(number, Integral) and not isinstance(number, bool)
        if not (is_integer and number >= least):
            raise ConfigError(f"{_name_of(owner)}: {name} must be an integer, {least} or more, not {number!r}")


def check_positive(owner: object, **numbers: Any) -> None:
    """Raise unless each number is greater than 0; see `check_at_least`."""
    for name, number in numbers.items():
        if not (isinstance(number, Real) and float(number) > 0):
            raise ConfigError(f"{_name_of(owner)}: {name} must be positive, not {number!r}")


def check_not_negative(owner: object, **numbers: Any) -> None:
    """Raise unless each number is at least 0, and not NaN; see `check_at_least`."""
    for name, number in numbers.items():
        if not (isinstance(number, Real) and float(number) >= 0):
            raise ConfigError(f"{_name_of(owner)}: {name} must be a number that is not negative, not {number!r}")


def given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that are not None, for the checks of optional ones."""
    return {name: value for name, value in arguments.items() if value is not None}


def check_flags(owner: object, **flags: Any) -> None:
    """Raise unless each flag is True or False; see `check_at_least`."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ConfigError(f"{_name_of(owner)}: {name} must be True or False, not {flag!r}")


def whole(number: Any) -> Any:
    """Return a whole float such as 32.0, or a dimension, as an integer, and any other value unchanged."""
    try:
        return int(number) if int(number) == number else number
    except (TypeError, ValueError, OverflowError):
        return number


def check_one_of(owner: object, known: Collection[Any], **values: Any) -> None:
    """Raise unless each value is one of `known`; see `check_at_least`."""
    for name, value in values.items():
        if value not in known:
            raise ConfigError(f"{_name_of(owner)}: {name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def compiled(owner: object, regex: Any) -> re.Pattern[str]:
    """Return a regular expression compiled; raise if it is invalid; see `check_at_least`."""
    try:
        return re.compile(regex)
    except (re.error, TypeError) as error:
        raise ConfigError(f"{_name_of(owner)}: {regex!r} is not a regular expression: {error}.") from error


def check_mode(owner: object, mode: Any) -> None:
    """Raise unless `mode` is ``"min"`` or ``"max"``: whether smaller or larger values are better."""
    check_one_of(owner, ("min", "max"), mode=mode)


def _name_of(owner: object) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__
