"""What gives variables their values when a training starts: a checkpoint, or a dictionary of arrays."""

from __future__ import annotations

import abc
import logging
import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import CheckpointError
from tpk.graph.variables import assign_values, by_name, saveable_variables

logger = logging.getLogger(__name__)


class SessionInit(abc.ABC):
    """Gives variables of a new session their values; what it does not name keeps its initial value."""

    @abc.abstractmethod
    def run(self, sess: Any) -> None:
        """Give the values, in the session `sess`, whose graph may be finalized."""


class DictRestore(SessionInit):
    """Takes values from a mapping of names to arrays.

    What is in the graph but not in the mapping, and the other way round, is reported in the log.

    Args:
        values: arrays by variable name, with or without ``:0``.

    Example:
        ```python
        trainer.train(..., session_init=tpk.DictRestore(dict(np.load("weights.npz"))))
        ```
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name.removesuffix(":0"): np.asarray(value) for name, value in values.items()}

    def run(self, sess: Any) -> None:
        """Assign the values.

        Raises:
            CheckpointError: if no name fits, or a shape does not.
        """
        restore(sess, self._values, "the dictionary")


class SaverRestore(SessionInit):
    """Takes values from a checkpoint of `tf.compat.v1.train.Saver`, tpk's own or another program's.

    Args:
        path: prefix of a checkpoint, such as ``run/model-900``, one of its files, or a directory whose latest
            checkpoint is taken.
        ignore: names of variables that keep their initial values.
    """

    def __init__(self, path: str | os.PathLike[str], ignore: Collection[str] = ()) -> None:
        self._prefix = find_checkpoint(path)
        self._ignore = {name.removesuffix(":0") for name in ignore}

    def run(self, sess: Any) -> None:
        """Assign the values.

        Raises:
            CheckpointError: if no name fits, or a shape does not.
        """
        reader = tf.train.load_checkpoint(self._prefix)
        wanted = by_name(saveable_variables(sess.graph)).keys() - self._ignore
        stored = reader.get_variable_to_shape_map().keys() - self._ignore
        values = {name: reader.get_tensor(name) if name in wanted else None for name in sorted(stored)}
        restore(sess, values, self._prefix, self._ignore)


def find_checkpoint(path: str | os.PathLike[str]) -> str:
    """Return the prefix of the checkpoint that `path` means.

    Args:
        path: a prefix, one of the files of a checkpoint, or a directory with a ``checkpoint`` file.

    Raises:
        CheckpointError: if there is none.
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        latest = tf.train.latest_checkpoint(name)
        if latest is None:
            raise CheckpointError(f"there is no checkpoint in the directory {name!r}.")
        return str(latest)
    prefix = name.removesuffix(".index")
    if ".data-" in os.path.basename(prefix):
        prefix = prefix[: prefix.rindex(".data-")]
    if not tf.compat.v1.train.checkpoint_exists(prefix):
        raise CheckpointError(
            f"there is no checkpoint {prefix!r}: no file {prefix + '.index'!r}. "
            "Give the prefix of a checkpoint (model-<step>) or the directory that holds it."
        )
    return prefix


def as_session_init(value: Any) -> SessionInit | None:
    """Return the `SessionInit` that `value` means.

    Args:
        value: a `SessionInit`, a path of a checkpoint, a mapping of names to arrays, or None.

    Raises:
        CheckpointError: if it is none of these.
    """
    if value is None or isinstance(value, SessionInit):
        return value
    if isinstance(value, Mapping):
        return DictRestore(value)
    if isinstance(value, str | os.PathLike):
        return SaverRestore(value)
    raise CheckpointError(
        f"session_init is {value!r}, a {type(value).__name__}; expected a SessionInit, the path of a checkpoint, "
        "or a mapping of variable names to arrays."
    )


def restore(sess: Any, values: Mapping[str, Any], source: str, ignore: Collection[str] = ()) -> None:
    """Assign `values` by name to the variables of the graph of `sess`, and report what did not match.

    Args:
        sess: the raw session.
        values: arrays by name.
        source: where they come from, for messages.
        ignore: names that are left out on purpose.

    Raises:
        CheckpointError: if no name fits, or a shape does not.
    """
    variables = by_name(saveable_variables(sess.graph))
    loaded = sorted(values.keys() & variables.keys())
    missing = sorted(variables.keys() - values.keys() - set(ignore))
    unused = sorted(values.keys() - variables.keys())
    if not loaded:
        raise CheckpointError(
            f"no variable of the graph is in {source}. In the graph: {', '.join(missing[:5])}, …; "
            f"in {source}: {', '.join(unused[:5])}, …. Rename them in a dictionary and give that as session_init."
        )
    assign_values(sess, ((variables[name], values[name]) for name in loaded))
    logger.info("restored %d variables from %s", len(loaded), source)
    if missing:
        logger.warning("not in %s, left as initialized: %s", source, ", ".join(missing))
    if unused:
        logger.warning("in %s, but not in the graph: %s", source, ", ".join(unused))
