"""Weights of a graph that only predicts: from a run, a file or arrays; random ones only if asked for."""

from __future__ import annotations

import difflib
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
from tpk.graph.variables import by_name, saveable_variables, variable_name


class AveragedWeights(RestoreByName):
    """Takes the moving averages of weights in place of the weights, where they are stored.

    The averages are those of a `MovingAverageOptimizer`, or of TensorFlow's `tf.train.ExponentialMovingAverage`. What
    has none, such as the statistics of batch normalization, is taken as it is.

    Args:
        weights: the directory of a run, the path of a checkpoint or of an ``.npz`` file, a mapping of names to arrays,
            or a `SessionInit` that takes values by name.

    Raises:
        CheckpointError: if it is nothing of that kind; and, when it is restored, if it holds no averages, or such that
            were never updated.

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
                "names to arrays, or a SessionInit that takes values by name. Wrap the parts of a list, each."
            )
        self._init = init

    @contextmanager
    def open(self) -> Iterator[StoredValues]:
        """Open the values, with the averages under the names of the weights."""
        with self._init.open() as values:
            yield _Averages(values)

    def match(self, graph: Any, values: StoredValues) -> Match:
        """Return which of `values` go to which variables of `graph`, as the wrapped one says."""
        return self._init.match(graph, values)


class InitialValues(SessionInit):
    """Gives variables what their initializers make, which is random for most weights.

    For tests and benchmarks; or by names, for what a model has besides the weights that are stored, such as tables.

    Args:
        names: names of variables; None for all.

    Raises:
        CheckpointError: (when it is run) if there is no such variable.

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
        variables = by_name(sess.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES))
        names = list(variables) if self._names is None else self._names
        for name in names:
            if name not in variables:
                near = difflib.get_close_matches(name, list(variables), n=3, cutoff=0.5)
                hint = f" Nearest: {', '.join(near)}." if near else ""
                raise CheckpointError(f"InitialValues: the model has no variable {name!r}.{hint}")
        sess.run([variables[name].initializer for name in names])


def restore_weights(sess: Any, weights: Any) -> None:
    """Give the variables of a session in which none has a value theirs.

    Args:
        sess: the raw session; its graph is not finalized.
        weights: what `tpk.checkpoint.session_init.as_session_init` takes.

    Raises:
        CheckpointError: if a value does not fit, or a variable is left without one; it names them.
    """
    init = as_session_init(weights)
    if init is not None:
        inits = [_ForInference(each) if isinstance(each, RestoreByName) else each for each in _parts(init)]
        ChainInit(inits).run(sess)
    missing = _without_value(sess)
    # A model may read these; where nothing is trained, they mean nothing.
    sess.run([variable.initializer for variable in missing if variable_name(variable) in COUNTERS])
    names = [name for name in map(variable_name, missing) if name not in COUNTERS]
    if names:
        raise CheckpointError(_nothing_for(names, init, by_name(saveable_variables(sess.graph))))


class _ForInference(RestoreByName):
    """Restores what `init` has for the graph. What only one of the two has is no news: what is missing is an error."""

    def __init__(self, init: RestoreByName) -> None:
        super().__init__()
        self._init = init

    def open(self) -> AbstractContextManager[StoredValues]:
        return self._init.open()

    def match(self, graph: Any, values: StoredValues) -> Match:
        match = self._init.match(graph, values)
        return attrs.evolve(match, rows=[row for row in match.rows if row.status == "mismatched"])


class _Averages(StoredValues):
    """Stored values, in which the name of a variable means its average, if there is one."""

    def __init__(self, values: StoredValues) -> None:
        super().__init__(f"the averages in {values.source}")
        self._values = values
        suffix = f"/{AVERAGE_NAME}"
        averaged = {name.removesuffix(suffix) for name in values if name.endswith(suffix)}
        if not averaged:
            raise CheckpointError(
                f"{values.source} holds no averages of weights ('…{suffix}'). Name it without AveragedWeights, or "
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


def _nothing_for(names: Sequence[str], init: SessionInit | None, known: Collection[str]) -> str:
    shown = names[:8]
    count = f"{len(names)} variables" if len(names) > 1 else "a variable"
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    if init is None:
        return (
            f"there are no weights: session_init is None, and the model has {count}: {', '.join(shown)}{more}. Name a "
            "run directory or a checkpoint, or say session_init=tpk.predict.InitialValues()."
        )
    sources: list[str] = []
    stored: set[str] = set()
    for each in _parts(init):
        if isinstance(each, RestoreByName):
            with each.open() as values:
                sources.append(values.source)
                stored.update(name for name in values if name not in known)
    described = ", ".join(f"{name}{_nearest(name, stored)}" for name in shown)
    return (
        f"{' and '.join(sources) or type(init).__name__} has no value for {count} of the model: {described}{more}. Is "
        "it the checkpoint of this model? What is missing can be given besides, as in session_init=[path, {name: "
        "value}], or left as initialized: session_init=[path, tpk.predict.InitialValues([name])]."
    )


def _nearest(name: str, stored: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(stored), n=1, cutoff=0.6)
    return f" (nearest there: {near[0]})" if near else ""
