"""Periods: every k steps, every k epochs."""

from __future__ import annotations

from tpk.errors import ConfigError


def check_period(name: str, value: int | None) -> int | None:
    """Return `value` if it is a period.

    Raises:
        ConfigError: if it is neither None nor a positive int.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConfigError(f"{name} must be a positive int or None, but is {value!r}.")
    return value
