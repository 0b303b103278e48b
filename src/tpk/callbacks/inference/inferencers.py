"""Inferencers: the statistics of an evaluation."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, InputError
from tpk.graph.variables import assign_values, make_local, record_variables, variable_name
from tpk.plugin.recorded_options import RecordsOptions
from tpk.tower.handle import TowerHandle


class Inferencer(RecordsOptions, abc.ABC):
    """Computes statistics from tensors that an `InferenceRunner` fetches for each batch.

    In a run of several processes, each process evaluates a share of the data. At the end of a pass, `merge` gets the
    `state` of every process and combines them into the state of a single process that has seen all data; then
    `after_inference` is called as usual. An inferencer without these two methods can only evaluate in one process.

    Attributes:
        trainer: the trainer; set before `get_fetches`.

    Example:
        ```python
        class LargestCost(Inferencer):
            def get_fetches(self, tower):
                return tower.get_tensor("cost")

            def before_inference(self):
                self.largest = -math.inf

            def on_fetches(self, results):
                self.largest = max(self.largest, float(results))

            def after_inference(self):
                return {"largest-cost": self.largest}

            def state(self):
                return self.largest

            def merge(self, states):
                self.largest = max(states)
        ```
    """

    trainer: tpk.Trainer

    @property
    def statistics(self) -> Sequence[str]:
        """The names of the statistics that are known before a pass, so that conflicts are found before training."""
        return ()

    @abc.abstractmethod
    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the tensors of an inference tower to fetch, in any structure that `Session.run` accepts.

        Called inside the graph, once for each inference tower. The result of an operation is None.
        """

    @abc.abstractmethod
    def before_inference(self) -> None:
        """Discard the state of the previous pass; called before each pass."""

    @abc.abstractmethod
    def on_fetches(self, results: Any) -> None:
        """Process the results of one batch; called in the order of the batches."""

    @abc.abstractmethod
    def after_inference(self) -> Mapping[str, float]:
        """Return the statistics of the pass, by name."""

    def state(self) -> Any:
        """Return the state of this process after its share of the data; it must be picklable."""
        raise NotImplementedError

    def merge(self, states: Sequence[Any]) -> None:
        """Replace the state by the combined state of all processes.

        Args:
            states: the state of each process by rank, including this process and processes without a batch.
        """
        raise NotImplementedError

    @classmethod
    def can_merge(cls) -> bool:
        """Return whether this class defines both `state` and `merge`."""
        return cls.state is not Inferencer.state and cls.merge is not Inferencer.merge


class ScalarStats(Inferencer):
    """The means of scalars over all examples: each batch is weighted by its size.

    The size of a batch is the first dimension of the tower's first input that is not a scalar. So the mean of a scalar
    that is itself a mean over the batch is exact, even if the last batch is smaller.

    Args:
        names: names of scalar tensors in the tower.
        prefix: the statistics are called ``<prefix>_<name>``, or ``<name>`` if it is empty.
    """

    def __init__(self, names: str | Sequence[str], prefix: str = "validation") -> None:
        self.names = [names] if isinstance(names, str) else list(names)
        self.prefix = prefix
        self._values: list[Any] = []

    @property
    def statistics(self) -> Sequence[str]:
        """The names of the means."""
        prefix = f"{self.prefix}_" if self.prefix else ""
        return [prefix + name.removesuffix(":0").rsplit("/", 1)[-1] for name in self.names]

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the scalars and the size of the batch.

        Raises:
            ConfigError: if a tensor is not known to be a scalar.
        """
        return (*(_find_tensor(self, tower, name, 0) for name in self.names), _batch_size(tower))

    def before_inference(self) -> None:
        """Discard the state of the previous pass."""
        self._values = []

    def on_fetches(self, results: Any) -> None:
        """Store the scalars of a batch, and its size."""
        self._values.append(results)

    def after_inference(self) -> Mapping[str, float]:
        """Return the means, or NaN if the pass was empty."""
        rows = np.asarray(self._values, np.float64).reshape(-1, len(self.names) + 1)
        return {name: _mean(column, rows[:, -1]) for name, column in zip(self.statistics, rows.T[:-1], strict=True)}

    def state(self) -> list[tuple[float, ...]]:
        """Return the scalars and sizes of all batches."""
        return [tuple(map(float, values)) for values in self._values]

    def merge(self, states: Sequence[list[tuple[float, ...]]]) -> None:
        """Combine the batches of all processes."""
        self._values = [values for state in states for values in state]


class _FractionOfExamples(Inferencer):
    """The fraction of all examples for which a vector is 1.

    It counts ones and examples, so batches of different sizes are exact.
    """

    def __init__(self, tensor_name: str, summary_name: str) -> None:
        self.tensor_name = tensor_name
        self.summary_name = summary_name
        self._ones = 0.0
        self._total = 0

    @property
    def statistics(self) -> Sequence[str]:
        """The name of the statistic."""
        return [self.summary_name]

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the vector.

        Raises:
            ConfigError: if it is not known to be a vector.
        """
        return _find_tensor(self, tower, self.tensor_name, 1)

    def before_inference(self) -> None:
        """Discard the state of the previous pass."""
        self._ones, self._total = 0.0, 0

    def on_fetches(self, results: Any) -> None:
        """Count the ones and the examples of a batch."""
        self._ones += float(np.sum(results, dtype=np.float64))
        self._total += len(results)

    def after_inference(self) -> Mapping[str, float]:
        """Return the fraction, or NaN if the pass was empty."""
        return {self.summary_name: self._ones / self._total if self._total else math.nan}

    def state(self) -> tuple[float, int]:
        """Return the number of ones, and of all examples."""
        return self._ones, self._total

    def merge(self, states: Sequence[tuple[float, int]]) -> None:
        """Add up the counts of all processes."""
        self._ones = math.fsum(ones for ones, _ in states)
        self._total = sum(total for _, total in states)


class Accuracy(_FractionOfExamples):
    """The fraction of correct predictions among all examples, exact for batches of different sizes.

    Args:
        correct_tensor_name: a vector in the tower, with 1 (or true) for each correct prediction.
        summary_name: the name of the statistic.

    Example:
        ```python
        # In build_graph: tf.equal(tf.argmax(logits, 1), label, name="correct")
        tpk.InferenceRunner(batches, tpk.Accuracy("correct"))
        ```
    """

    def __init__(self, correct_tensor_name: str = "correct", summary_name: str = "validation_accuracy") -> None:
        super().__init__(correct_tensor_name, summary_name)


class ClassificationError(_FractionOfExamples):
    """The fraction of wrong predictions among all examples, exact for batches of different sizes.

    Args:
        wrong_tensor_name: a vector in the tower, with 1 (or true) for each wrong prediction.
        summary_name: the name of the statistic.
    """

    def __init__(self, wrong_tensor_name: str = "incorrect_vector", summary_name: str = "validation_error") -> None:
        super().__init__(wrong_tensor_name, summary_name)


class BinaryClassificationStats(Inferencer):
    """Precision, recall and F1 of binary predictions over all examples.

    They are called ``<prefix>_precision``, ``<prefix>_recall`` and ``<prefix>_f1``. A statistic whose denominator is
    zero is 0, as in TensorFlow's metrics.

    Args:
        pred_tensor_name: a vector in the tower: for each example 1 or 0, true or false, or a score.
        label_tensor_name: a vector in the tower with 1 (or true) for each positive example, otherwise 0.
        prefix: the prefix of the names.
        threshold: predictions greater than this number are positive.

    Example:
        ```python
        tpk.InferenceRunner(batches, BinaryClassificationStats("probability", "label", threshold=0.3))
        ```
    """

    def __init__(
        self, pred_tensor_name: str, label_tensor_name: str, prefix: str = "val", threshold: float = 0.5
    ) -> None:
        self.pred_tensor_name = pred_tensor_name
        self.label_tensor_name = label_tensor_name
        self.prefix = prefix
        self.threshold = threshold
        # True positives, predicted positives, labelled positives.
        self._counts = np.zeros(3, np.int64)

    @property
    def statistics(self) -> Sequence[str]:
        """The names of precision, recall and F1."""
        return [f"{self.prefix}_{name}" for name in ("precision", "recall", "f1")]

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the predictions and labels.

        Raises:
            ConfigError: if they are not known to be vectors.
        """
        names = (self.pred_tensor_name, self.label_tensor_name)
        return tuple(_find_tensor(self, tower, name, 1) for name in names)

    def before_inference(self) -> None:
        """Discard the state of the previous pass."""
        self._counts[:] = 0

    def on_fetches(self, results: Any) -> None:
        """Count the positives of a batch.

        Raises:
            InputError: if predictions and labels differ in number, or a label is neither 0 nor 1.
        """
        predictions, labels = np.asarray(results[0]), np.asarray(results[1])
        positive = labels.astype(bool)
        if len(predictions) != len(labels) or not np.array_equal(positive, labels):
            raise InputError(
                f"BinaryClassificationStats: {self.label_tensor_name!r} must have a 0 or 1 for each of the "
                f"{len(predictions)} values of {self.pred_tensor_name!r}, but it has {len(labels)}: {labels}"
            )
        predicted = predictions.astype(np.float64) > self.threshold
        self._counts += [np.sum(predicted & positive), np.sum(predicted), np.sum(positive)]

    def after_inference(self) -> Mapping[str, float]:
        """Return precision, recall and F1."""
        hits, predicted, labelled = self._counts.tolist()
        values = (hits / max(predicted, 1), hits / max(labelled, 1), 2 * hits / max(predicted + labelled, 1))
        return dict(zip(self.statistics, values, strict=True))

    def state(self) -> Any:
        """Return the counts."""
        return self._counts.copy()

    def merge(self, states: Sequence[Any]) -> None:
        """Add up the counts of all processes."""
        self._counts[:] = sum(states)


def _find_tensor(owner: Inferencer, tower: TowerHandle, name: str, rank: int) -> Any:
    tensor = tower.get_tensor(name)
    if tensor.shape.rank != rank:
        wanted = "vectors with one element for each example" if rank else "scalars"
        raise ConfigError(f"{type(owner).__name__} takes {wanted}, but {tensor.name!r} has shape {tensor.shape}.")
    return tensor


def _batch_size(tower: TowerHandle) -> Any:
    batched = [tensor for tensor in tower.inputs if tensor.shape.rank != 0]
    # The product is 1 if the tensor turns out to be a scalar, because its static rank is unknown.
    return tf.reduce_prod(tf.shape(batched[0])[:1]) if batched else tf.constant(1)


def _mean(values: Any, weights: Any) -> float:
    """Return the weighted mean: the same bits for any order of the values, and any number of processes."""
    if not np.any(weights):
        return math.nan
    with np.errstate(all="ignore"):
        try:
            return math.fsum(values * weights) / math.fsum(weights)
        except (OverflowError, ValueError):  # Infinities of both signs, or an overflow.
            return float(np.average(values, weights=weights))


Metric = Callable[..., tuple[Any, Any]]


class MetricInferencer(Inferencer):
    """Reports a metric of `tf.compat.v1.metrics`, or of a similar function, over all examples.

    The metric is part of the graph: its update runs along with each batch, nothing is fetched, and its value is
    computed once at the end of the pass. Each pass resets it.

    Give the metric one value for each example. A mean over the batch needs the size of the batch as its weight, as in
    the example below; otherwise the examples of a small batch count for more.

    Each tower and each process has its own state; the states are added up before the value is computed. Except for
    rounding, this is exact if the state consists of sums and counts, as the aggregation of its variables tells. This is
    true for all metrics of `tf.compat.v1.metrics`; other metrics are refused with several towers or processes.

    Args:
        metric: a function that returns a pair: a tensor with the value, and an op or tensor that updates the metric.
        tensors: the names of tensors in the tower, by the arguments of the function.
        name: the name of the statistic; by default ``validation_`` and the name of the function. If the value is a
            vector, its elements are called ``<name>_0`` and so on.
        options: other arguments of the function.

    Raises:
        ConfigError: if `metric` is not a function, or `tensors` is empty.

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
                f"MetricInferencer takes a function such as tf.compat.v1.metrics.auc, not {metric!r}. For a "
                "tensor, use ScalarStats."
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
        # The variables of the metric in each tower.
        self._variables: list[list[Any]] = []

    @property
    def statistics(self) -> Sequence[str]:
        """The name of the value; once the metric is in the graph, the names of the elements of a vector."""
        if self._value is None or self._value.shape.rank == 0:
            return [self.name]
        return [f"{self.name}_{index}" for index in range(self._value.shape[0])]

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the op that updates the metric.

        Raises:
            ConfigError: if the function does not take these arguments; if its value is not a scalar or a vector of
                known length; or if there are several towers or processes, and the states may not be sums.
        """
        tensors = {argument: tower.get_tensor(name) for argument, name in self.tensors.items()}
        with record_variables() as variables:
            try:
                value, update = self.metric(**tensors, **self._options)
            except TypeError as error:
                given = ", ".join([*tensors, *self._options])
                raise ConfigError(f"{self._label} failed: {error}. The arguments given to it are: {given}.") from error
        # The variables of a user's metric must be neither saved nor trained.
        make_local(variables)
        if not tf.is_tensor(value) or value.shape.rank not in (0, 1) or None in value.shape.as_list():
            raise ConfigError(
                f"{self._label} must return a scalar, or a vector of known length, and an update, but its value is "
                f"{value!r}."
            )
        if self._value is None:
            self._value = value
        self._variables.append(variables)
        if len(self._variables) > 1 or self.trainer.strategy.process_group.world_size > 1:
            self._check_sums()
        return update.op if tf.is_tensor(update) else update

    def before_inference(self) -> None:
        """Reset the metric of each tower."""
        self.trainer.sess.run([variable.initializer for variables in self._variables for variable in variables])

    def on_fetches(self, results: Any) -> None:
        """Do nothing: the update has run in the graph."""

    def after_inference(self) -> Mapping[str, float]:
        """Return the value."""
        if len(self._variables) > 1:
            self.merge([self.state()])
        value = self.trainer.sess.run(self._value)
        return dict(zip(self.statistics, np.atleast_1d(value).tolist(), strict=True))

    def state(self) -> list[Any]:
        """Return the values of the variables, summed over all towers."""
        return _sums(self.trainer.sess.run(self._variables))

    def merge(self, states: Sequence[list[Any]]) -> None:
        """Assign the sums over all processes to the first tower, and reset the others."""
        self.before_inference()
        assign_values(self.trainer.sess, zip(self._variables[0], _sums(states), strict=True))

    @property
    def _label(self) -> str:
        return f"the metric {_name_of(self.metric)} of {self.name!r}"

    def _check_sums(self) -> None:
        others = [
            variable_name(variable)
            for variable in self._variables[-1]
            if variable.aggregation != tf.VariableAggregation.SUM
        ]
        if others:
            raise ConfigError(
                f"{self._label} cannot be computed by several towers or processes: {', '.join(others)} need not be "
                "sums. If they are, create them with aggregation=tf.VariableAggregation.SUM; otherwise write an "
                "Inferencer."
            )


def _sums(states: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the sum of each variable over several states, in its own type, so that integers stay exact."""
    return [np.sum(np.stack(values), axis=0, dtype=values[0].dtype) for values in zip(*states, strict=True)]


def _name_of(metric: Any) -> str:
    function = getattr(metric, "func", metric)
    return getattr(function, "__name__", type(metric).__name__)
