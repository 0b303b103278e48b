"""Checks of what a trainer is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpk.errors import ConfigError
from tpk.session import NewSessionCreator, SessionCreator


def check_counts(steps_per_epoch: int, starting_epoch: int, max_epoch: int) -> None:
    """Check the counts of steps and epochs.

    Raises:
        ConfigError: if one of them is no number that it can be.
    """
    counts = {
        "steps_per_epoch": steps_per_epoch,
        "starting_epoch": starting_epoch,
        "max_epoch": max_epoch,
    }
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < (name != "max_epoch"):
            raise ConfigError(f"{name}={count!r}: expected a positive whole number.")


def choose_creator(creator: SessionCreator | None, config: Any, adjust_config: Callable[[Any], Any]) -> SessionCreator:
    """Return what creates the session.

    Args:
        creator: what the user gave, or None for a new session.
        config: the `tf.compat.v1.ConfigProto` that the user gave for a new session, or None.
        adjust_config: returns the config that the trainer wants, given that.

    Raises:
        ConfigError: if both are given.
    """
    if creator is not None and config is not None:
        raise ConfigError(
            "session_creator and session_config exclude each other. Give the config to the session creator."
        )
    if creator is None:
        creator = NewSessionCreator(config=config)
    if isinstance(creator, NewSessionCreator):
        creator.config = adjust_config(creator.config)
    return creator
