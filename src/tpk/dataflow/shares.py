"""What part of the datapoints each of several workers has."""

from __future__ import annotations

from tpk.errors import ConfigError


def check_share(index: int, count: int) -> None:
    """Make sure that `index` is the number of one of `count` workers.

    Raises:
        ConfigError: it is not.
    """
    if not 0 <= index < count:
        raise ConfigError(f"a share must have a number from 0 to {count - 1}, not {index}")


def length_of_share(length: int, index: int, count: int, block: int = 1) -> int:
    """Return how many of `length` datapoints are in a share of theirs."""
    rounds, rest = divmod(length, count * block)
    return rounds * block + min(max(rest - index * block, 0), block)
