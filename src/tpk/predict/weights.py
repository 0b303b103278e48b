"""Weights of a graph for inference: from a run, a file or arrays; initial values only on request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.checkpoint.restore import Match
from tpk.checkpoint.session_init import ChainInit, RestoreByName, SessionInit, as_session_init
from tpk.checkpoint.stored_values import StoredValues, ValueSpec
from tpk.errors import CheckpointError
from tpk.graph.optimizers.weight_averages import AVERAGE_NAME
from tpk.graph.random import COUNTERS
from tpk.graph.scopes import backup_collection, restore_collection
from tpk.graph.variables import by_name, saveable_variables, variable_name
from tpk.session.creator import SessionCreator
from tpk.text import format_count, nearest, some

_GLOBAL = tf.compat.v1.GraphKeys.GLOBAL_VARIABLES


class AveragedWeights(RestoreByName):
    """Restores the moving averages of weights instead of the weights.

    It finds the averages of a `MovingAverageOptimizer`, or of TensorFlow's `tf.train.ExponentialMovingAverage`.
    Variables without an average, such as the statistics of batch normalization, get their own values.

    Args:
        weights: the directory of a run, the path of a checkpoint or of an ``.npz`` file, a mapping of names to arrays,
            or a `SessionInit` that restores values by name.

    Raises:
        CheckpointError: if `weights` is invalid; and, when restoring, if it has no averages, or they were never
            updated.

    Example:
        ```python
        config = tpk.PredictConfig(model=Model(), session_init=AveragedWeights("runs/cats"), output_names=["probs"])
        ```
    """

    def __init__(self, weights: Any) -> None:
        super().__init__()
        init = as_session_init(weights)
        if not isinstance(init, RestoreByName):
            raise CheckpointError(
                f"AveragedWeights({weights!r}): expected the path of a checkpoint or of an .npz file, a mapping of "
                "names to arrays, or a SessionInit that restores values by name. Wrap each element of a list."
            )
        self._init = init

    @contextmanager
    def open(self) -> Iterator[StoredValues]:
        """Open the values, with the averages under the names of the weights."""
        with self._init.open() as values:
            yield _Averages(values)

    def match(self, graph: Any, values: StoredValues) -> Match:
        """Return which of `values` go to which variables of `graph`."""
        return self._init.match(graph, values)


class InitialValues(SessionInit):
    """Gives variables their initial values, which are random for most weights.

    Use it for tests and benchmarks, or with names for variables that are not stored.

    Args:
        names: names of variables; None for all.

    Raises:
        CheckpointError: when restoring, if the model has no variable with one of the names.

    Example:
        ```python
        config = tpk.PredictConfig(model=Model(), session_init=InitialValues(), output_names=["probs"])
        config = tpk.PredictConfig(
            model=Model(), session_init=["runs/cats", InitialValues(["colors"])], output_names=["probs"]
        )
        ```
    """

    def __init__(self, names: Collection[str] | None = None) -> None:
        if isinstance(names, str):
            raise CheckpointError(f"InitialValues({names!r}): expected a list of names, e.g. [{names!r}].")
        self._names = None if names is None else [name.removesuffix(":0") for name in names]

    def run(self, sess: Any) -> None:
        """Run the initializers."""
        variables = by_name(sess.graph.get_collection(_GLOBAL))
        names = list(variables) if self._names is None else self._names
        for name in names:
            if name not in variables:
                raise CheckpointError(f"InitialValues: the model has no variable {name!r}.{nearest(name, variables)}")
        sess.run([variables[name].initializer for name in names])


def create_restored_session(graph: Any, creator: SessionCreator, weights: Any) -> Any:
    """Return a new session with all variables restored.

    Args:
        graph: the graph of the model; it is not finalized.
        creator: creates the session.
        weights: see `PredictConfig.session_init`.

    Raises:
        CheckpointError: if a value does not fit, or is missing; the message names the variables.
    """
    with graph.as_default():
        kept = backup_collection([_GLOBAL])
        # Keep the creator from initializing weights, so that those without a stored value are found later.
        restore_collection({_GLOBAL: ()})
        try:
            sess = creator.create_session(graph)
        finally:
            restore_collection(kept)
    try:
        restore_weights(sess, weights)
    except BaseException:
        sess.close()
        raise
    return sess


def restore_weights(sess: Any, weights: Any) -> None:
    """Restore the variables of a new session.

    Args:
        sess: the raw session, in which no variable has a value; its graph is not finalized.
        weights: see `PredictConfig.session_init`.

    Raises:
        CheckpointError: if a value does not fit, or is missing; the message names the variables.
    """
    init = as_session_init(weights)
    if init is not None:
        inits = [_ForInference(each) if isinstance(each, RestoreByName) else each for each in _parts(init)]
        ChainInit(inits).run(sess)
    missing = _without_value(sess)
    # A model may read the counters of a training, whose values do not matter here.
    sess.run([variable.initializer for variable in missing if variable_name(variable) in COUNTERS])
    names = [name for name in map(variable_name, missing) if name not in COUNTERS]
    if names:
        raise CheckpointError(_missing_values(names, init, by_name(saveable_variables(sess.graph))))


class _ForInference(RestoreByName):
    """Restores `init` without logging names that only one side has, because `restore_weights` checks these itself."""

    def __init__(self, init: RestoreByName) -> None:
        super().__init__()
        self._init = init

    def open(self) -> AbstractContextManager[StoredValues]:
        return self._init.open()

    def match(self, graph: Any, values: StoredValues) -> Match:
        match = self._init.match(graph, values)
        return attrs.evolve(match, rows=[row for row in match.rows if row.status == "mismatched"])


class _Averages(StoredValues):
    """Stored values in which a variable with an average has the value of its average."""

    def __init__(self, values: StoredValues) -> None:
        super().__init__(f"the averages in {values.source}")
        self._values = values
        suffix = f"/{AVERAGE_NAME}"
        averaged = {name.removesuffix(suffix) for name in values if name.endswith(suffix)}
        if not averaged:
            raise CheckpointError(
                f"{values.source} contains no averages of weights ('…{suffix}'). Use it without AveragedWeights, or "
                "train with MovingAverageOptimizer."
            )
        for name in values:
            if name.endswith(f"{suffix}/num_updates") and not values[name]:
                raise CheckpointError(
                    f"the averages in {values.source} have never been updated: {name!r} is 0. Use the weights, or a "
                    "later checkpoint."
                )
        own = [name for name in values if not name.endswith(suffix) and f"{suffix}/" not in name]
        self._stored = {name: name + suffix if name in averaged else name for name in own}

    def spec(self, name: str) -> ValueSpec:
        return self._values.spec(self._stored[name])

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        value: np.ndarray[Any, Any] = self._values[self._stored[name]]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def _parts(init: SessionInit) -> Sequence[SessionInit]:
    return init.inits if isinstance(init, ChainInit) else [init]


def _without_value(sess: Any) -> list[Any]:
    with sess.graph.as_default(), tf.name_scope("has_value"):
        variables = tf.compat.v1.global_variables()
        has_value = sess.run([tf.compat.v1.is_variable_initialized(variable) for variable in variables])
    return [variable for variable, has in zip(variables, has_value, strict=True) if not has]


def _missing_values(names: Sequence[str], init: SessionInit | None, known: Collection[str]) -> str:
    count = format_count(len(names), "variable")
    if init is None:
        return (
            f"session_init is None, but the model has {count}: {some(names, 8)}. Set it to a run directory or a "
            "checkpoint, or to tpk.predict.InitialValues()."
        )
    sources: list[str] = []
    stored: set[str] = set()
    for each in _parts(init):
        if isinstance(each, RestoreByName):
            with each.open() as values:
                sources.append(values.source)
                stored.update(name for name in values if name not in known)
    hints = dict.fromkeys(nearest(name, sorted(stored), n=1, cutoff=0.6) for name in names[:8])
    return (
        f"{' and '.join(sources) or type(init).__name__} has no value for {count} of the model: {some(names, 8)}."
        f"{''.join(hints)} Is it the checkpoint of this model? You can also add the missing values, as in "
        "session_init=[path, {name: value}], or keep initial values, as in session_init=[path, "
        "tpk.predict.InitialValues([name])]."
    )
