"""Warm starts: initial values of variables from another checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs
import tensorflow as tf

VocabInfo = tf.compat.v1.train.VocabInfo


def _as_mapping(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return given or {}


@attrs.frozen
class WarmStartSettings:
    """Which variables start from the values in another checkpoint; see `tf.compat.v1.train.warm_start`.

    Args:
        ckpt_to_initialize_from: a checkpoint, or a directory with checkpoints.
        vars_to_warm_start: a regular expression for trainable variables, a list of regular expressions for all
            variables, a list of variables, or None for only those in `var_name_to_vocab_info`.
        var_name_to_vocab_info: a `VocabInfo` for each variable whose rows belong to a vocabulary that has changed.
        var_name_to_prev_var_name: the names in the checkpoint of variables that have other names there.

    Raises:
        ValueError: if `ckpt_to_initialize_from` is empty.
    """

    ckpt_to_initialize_from: str = attrs.field(validator=attrs.validators.min_len(1))
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] = attrs.field(default=None, converter=_as_mapping)
    var_name_to_prev_var_name: Mapping[str, str] = attrs.field(default=None, converter=_as_mapping)

    @property
    def checkpoint(self) -> str:
        """The path of the checkpoint."""
        path = self.ckpt_to_initialize_from
        return tf.train.latest_checkpoint(path) if tf.io.gfile.isdir(path) else path

    def apply(self) -> None:
        """Change the initial values of variables in the default graph."""
        tf.compat.v1.train.warm_start(
            self.ckpt_to_initialize_from,
            self.vars_to_warm_start,
            self.var_name_to_vocab_info,
            self.var_name_to_prev_var_name,
        )


def as_warm_start_settings(given: Any) -> WarmStartSettings | None:
    """Return settings from a path of a checkpoint, of a directory, or of a SavedModel; None stays None.

    Raises:
        ValueError: if it is something else.
    """
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if not isinstance(given, str | bytes | os.PathLike):
        raise ValueError(f"warm_start_from must be a path or WarmStartSettings, but got {given!r}.")
    path = os.fsdecode(given)
    variables = os.path.join(path, "variables", "variables")
    return WarmStartSettings(variables if tf.io.gfile.exists(f"{variables}.index") else path)
