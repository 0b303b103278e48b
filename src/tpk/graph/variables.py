"""Variables of a graph: their names, recording and saving them, and assigning values without new ops."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.argument_checks import compiled
from tpk.errors import CheckpointError

logger = logging.getLogger(__name__)

GraphKeys = tf.compat.v1.GraphKeys

# Each run has a cost that grows with the graph, so one run assigns many values. But its cost grows faster than linearly
# with the number of feeds.
_VALUES_PER_RUN = 1000
_BYTES_PER_RUN = 2**28


def variable_name(variable: Any) -> str:
    """Return the name of `variable` in checkpoints: without the ``:0``."""
    return str(variable.name).rsplit(":", 1)[0]


def name_in_tower(name: str) -> str:
    """Return the name of a variable or tensor without the prefix of its tower."""
    # Scopes of a model must not have such names; see the rules of tower functions.
    return re.sub(r"^tower\d+/", "", name)


def tower_of(name: str) -> str:
    """Return the prefix of the tower in the name of a variable, with the slash, or an empty string."""
    return name.removesuffix(name_in_tower(name))


class NamePattern:
    """A regular expression that matches the *whole* names of variables inside their tower.

    Args:
        regex: the regular expression.
        user: the class or function that uses it, for messages.

    Raises:
        ConfigError: if it is invalid.
    """

    def __init__(self, regex: str, user: str) -> None:
        self._user = user
        self._regex = compiled(user, regex)

    def matches(self, variable: Any) -> bool:
        """Return whether the name of `variable` matches."""
        return self._regex.fullmatch(name_in_tower(variable_name(variable))) is not None

    def warn_unless_any(self, variables: Iterable[Any]) -> None:
        """Log a warning that names `variables` if none of them matches."""
        candidates = list(variables)
        if not any(map(self.matches, candidates)):
            names = ", ".join(name_in_tower(variable_name(each)) for each in candidates)
            logger.warning(
                "%s: %r does not match the whole name of any variable (%s)",
                self._user,
                self._regex.pattern,
                names or "there are none",
            )


def unique_name(name: str, taken: set[str]) -> str:
    """Return `name`, numbered if it is in `taken`, and add the result to `taken`."""
    number, unique = 0, name
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return unique


def saveable_variables(graph: Any) -> list[Any]:
    """Return the variables of `graph` that checkpoints contain: the global and the saveable ones, each once.

    Of a variable that a `tf.distribute.Strategy` has made, these are the copies.
    """
    keys = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.SAVEABLE_OBJECTS)
    found = [each for key in keys for each in graph.get_collection(key)]
    copies = [copy for each in found for copy in getattr(each, "values", [each])]
    return list(by_name(each for each in copies if hasattr(each, "initializer")).values())


def assign_values(sess: Any, values: Iterable[tuple[Any, np.ndarray]]) -> None:
    """Give variables new values in `sess`, many in one run.

    It feeds the initial values of the variables' own initializers, so it works in a finalized graph.

    Args:
        sess: the `tf.compat.v1.Session` whose variables change.
        values: pairs of a variable and its new value.

    Raises:
        CheckpointError: if a value's shape does not fit its variable.
    """
    feeds: dict[str, np.ndarray] = {}
    initializers: list[Any] = []
    size = 0
    for variable, value in values:
        if not variable.shape.is_compatible_with(np.shape(value)):
            raise CheckpointError(
                f"variable {variable_name(variable)!r} has shape {variable.shape}, but its value has shape "
                f"{np.shape(value)}. Do not restore this variable, or give a value of that shape."
            )
        array = np.asarray(value, variable.dtype.as_numpy_dtype)
        initial_value = variable.initializer.inputs[1].name
        is_full = len(feeds) == _VALUES_PER_RUN or size + array.nbytes > _BYTES_PER_RUN
        if feeds and (is_full or initial_value in feeds):  # Two variables may have one initial value.
            sess.run(initializers, feeds)
            feeds, initializers, size = {}, [], 0
        feeds[initial_value] = array
        initializers.append(variable.initializer)
        size += array.nbytes
    if initializers:
        sess.run(initializers, feeds)


def by_name(variables: Iterable[Any]) -> Mapping[str, Any]:
    """Return `variables` by their names in checkpoints."""
    return {variable_name(variable): variable for variable in variables}


@contextmanager
def record_variables() -> Iterator[list[Any]]:
    """Yield a list to which each variable created within the context is added, in order.

    This includes variables of `get_variable` and `tf.Variable`, and optimizer slots.
    """
    created: list[Any] = []

    def creator(next_creator: Any, **options: Any) -> Any:
        variable = next_creator(**options)
        created.append(variable)
        return variable

    with tf.variable_creator_scope(creator):
        yield created


def make_local(variables: Sequence[Any]) -> None:
    """Make `variables` local: initialized like others, but not saved, and not in the collections that are trained."""
    graph = tf.compat.v1.get_default_graph()
    names = {variable.name for variable in variables}
    for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES, GraphKeys.MODEL_VARIABLES):
        collection = graph.get_collection_ref(key)
        collection[:] = [variable for variable in collection if variable.name not in names]
    local = graph.get_collection_ref(GraphKeys.LOCAL_VARIABLES)
    known = {variable.name for variable in local}
    local.extend(variable for variable in variables if variable.name not in known)
