"""TensorFlow's own streaming metrics as statistics of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tpk.callbacks.inference.inferencers import Inferencer
from tpk.errors import ConfigError
from tpk.graph.variables import assign_values, make_local, record_variables, variable_name

if TYPE_CHECKING:
    from tpk.tower.handle import TowerHandle

Metric = Callable[..., tuple[Any, Any]]


class MetricInferencer(Inferencer):
    """Reports a metric of `tf.compat.v1.metrics`, or any function like these, over all examples of a pass.

    The metric lives in the graph: its update runs along with each batch, nothing is fetched, and its value is computed
    once at the end of the pass. It begins anew in each pass.

    Several towers or processes have a state each, and these are added up before the value is computed. That is exact,
    but for rounding, where the state consists of sums and counts, which a metric says by the aggregation of its
    variables. All metrics of `tf.compat.v1.metrics` are of that kind; one that is not is refused there.

    Args:
        metric: a function that returns a pair: a tensor with the value, and an op or tensor that updates the metric.
        tensors: for each argument of the function that is a tensor, the name of that tensor in the tower.
        name: what the statistic is called; by default ``validation_`` and the name of the function. Where the value is
            a vector, its elements are called ``<name>_0`` and so on.
        options: the function's other arguments.

    Raises:
        ConfigError: if the metric is no function, or no tensors are given for it.

    Example:
        ```python
        metrics = tf.compat.v1.metrics
        MetricInferencer(metrics.auc, {"labels": "label", "predictions": "probability"}, num_thresholds=500)
        MetricInferencer(metrics.mean, {"values": "cost", "weights": "batch_size"}, name="test_cost")
        ```
    """

    def __init__(self, metric: Metric, tensors: Mapping[str, str], name: str | None = None, **options: Any) -> None:
        if not callable(metric):
            raise ConfigError(
                f"MetricInferencer takes a function such as tf.compat.v1.metrics.auc, not {metric!r}. Give what is "
                "computed already to ScalarStats."
            )
        if not isinstance(tensors, Mapping) or not tensors:
            raise ConfigError(
                f"MetricInferencer({_name_of(metric)}, {tensors!r}): expected names of tensors by argument, such as "
                '{"labels": "label", "predictions": "probability"}.'
            )
        self.metric = metric
        self.tensors = dict(tensors)
        self.name = f"validation_{_name_of(metric)}" if name is None else name
        self._options = options
        self._value: Any = None
        # Of each tower.
        self._variables: list[list[Any]] = []

    @property
    def statistics(self) -> Sequence[str]:
        """The name of the value, or of its elements, once the metric is in the graph."""
        if self._value is None or self._value.shape.rank == 0:
            return [self.name]
        return [f"{self.name}_{index}" for index in range(self._value.shape[0])]

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the op that updates the metric.

        Raises:
            ConfigError: if the function does not take these arguments, or returns something else than a pair of a
                scalar (or a vector of a known length) and an update; or if several towers or processes need to add up
                the states of a metric that are no sums.
        """
        tensors = {argument: tower.get_tensor(name) for argument, name in self.tensors.items()}
        with record_variables() as variables:
            try:
                value, update = self.metric(**tensors, **self._options)
            except TypeError as error:
                given = ", ".join([*tensors, *self._options])
                raise ConfigError(f"{self._what} failed: {error}. The arguments given to it are: {given}.") from error
        # What a function of the user's creates must neither be saved nor trained.
        make_local(variables)
        if not tf.is_tensor(value) or value.shape.rank not in (0, 1) or None in value.shape.as_list():
            raise ConfigError(
                f"{self._what} must return a scalar, or a vector of a known length, and an update, but its value is "
                f"{value!r}."
            )
        if self._value is None:
            self._value = value
        self._variables.append(variables)
        if len(self._variables) > 1 or self.trainer.strategy.process_group.world_size > 1:
            self._check_sums()
        return update.op if tf.is_tensor(update) else update

    def before_inference(self) -> None:
        """Let the metric of each tower begin anew."""
        self.trainer.sess.run([variable.initializer for variables in self._variables for variable in variables])

    def on_fetches(self, results: Any) -> None:
        """Do nothing: the graph has done it."""

    def after_inference(self) -> Mapping[str, float]:
        """Return the value."""
        if len(self._variables) > 1:
            self.merge([self.state()])
        value = self.trainer.sess.run(self._value)
        return dict(zip(self.statistics, np.atleast_1d(value).tolist(), strict=True))

    def state(self) -> list[Any]:
        """Return the sums over all towers of what their variables hold."""
        return _sums(self.trainer.sess.run(self._variables))

    def merge(self, states: Sequence[list[Any]]) -> None:
        """Give the first tower the sums over all processes, and the others nothing."""
        self.before_inference()
        assign_values(self.trainer.sess, zip(self._variables[0], _sums(states), strict=True))

    @property
    def _what(self) -> str:
        return f"the metric {_name_of(self.metric)} of {self.name!r}"

    def _check_sums(self) -> None:
        others = [
            variable_name(variable)
            for variable in self._variables[-1]
            if variable.aggregation != tf.VariableAggregation.SUM
        ]
        if others:
            raise ConfigError(
                f"{self._what} cannot be computed by several towers or processes: {', '.join(others)} need not be "
                "sums. If they are, create them with aggregation=tf.VariableAggregation.SUM; else write an Inferencer."
            )


def _sums(states: Sequence[Sequence[Any]]) -> list[Any]:
    """Add up the variables of several metrics: in the type that they have, so that whole numbers stay exact."""
    return [np.sum(np.stack(values), axis=0, dtype=values[0].dtype) for values in zip(*states, strict=True)]


def _name_of(metric: Any) -> str:
    function = getattr(metric, "func", metric)
    return getattr(function, "__name__", type(metric).__name__)
