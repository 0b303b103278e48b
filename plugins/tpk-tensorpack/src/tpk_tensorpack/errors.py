"""The errors of checks that are ``assert`` statements in tensorpack."""

from __future__ import annotations

from tpk.errors import ConfigError, InputError


class CheckError(ConfigError, InputError, TypeError, AssertionError):
    """Raised when an argument or a datapoint is invalid and tensorpack would raise an `AssertionError`.

    Scripts that catch `AssertionError` keep working.
    """
