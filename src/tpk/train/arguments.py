"""Checks of what a trainer is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.session.creator import NewSessionCreator, SessionCreator, default_session_config

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer

FOREVER = 2**63 - 1
"""The `max_epoch` of a training that ends by itself."""


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


def choose_creator(trainer: Trainer, creator: SessionCreator | None, config: Any) -> SessionCreator:
    """Return what creates the session of a trainer.

    Args:
        trainer: says what the session's config shall be, and what creates it by default.
        creator: what the user gave, or None for a new session.
        config: the `tf.compat.v1.ConfigProto` that the user gave for a new session, or None.

    Raises:
        ConfigError: if both are given.
    """
    if creator is not None and config is not None:
        raise ConfigError(
            "session_creator and session_config exclude each other. Give the config to the session creator."
        )
    if creator is None:
        config = default_session_config() if config is None else config
        return trainer.session_creator(trainer.session_config(config))
    if type(creator) is NewSessionCreator and not creator.target:
        return trainer.session_creator(trainer.session_config(creator.config))
    if isinstance(creator, NewSessionCreator):
        creator.config = trainer.session_config(creator.config)
    return creator
