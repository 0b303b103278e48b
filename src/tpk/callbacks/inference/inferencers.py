"""Inferencers: statistics that an evaluation computes from each batch, and reports at its end."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError, InputError
from tpk.graph.variables import assign_values, make_local, record_variables, variable_name
from tpk.plugin.description import RecordsOptions

if TYPE_CHECKING:
    from tpk.plugin.trainer import TowerTrainerProtocol
    from tpk.tower.handle import TowerHandle


class Inferencer(RecordsOptions, abc.ABC):
    """Takes some tensors of each batch of an `InferenceRunner`, and reports statistics at the end of a pass.

    In a training of several processes each one evaluates a share of the data. At the end of a pass all of them get what
    `state` returns in each process, and `merge` makes of it what one process would have of all the data; then
    `after_inference` is called as ever. An inferencer without these two evaluates in one process only.

    Attributes:
        trainer: the trainer of the runner; set before `get_fetches`.

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

    trainer: TowerTrainerProtocol

    @property
    def statistics(self) -> Sequence[str]:
        """The names of the statistics, as far as they are known before a pass: so clashes are found before training."""
        return ()

    @abc.abstractmethod
    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the tensors of the inference tower to fetch, in any structure that `Session.run` takes.

        It is called inside the graph, once for each inference tower. An operation runs along, and gives None.
        """

    @abc.abstractmethod
    def before_inference(self) -> None:
        """Forget the last pass; called before each one."""

    @abc.abstractmethod
    def on_fetches(self, results: Any) -> None:
        """Take the values of the fetches in one batch; called in the order of the batches."""

    @abc.abstractmethod
    def after_inference(self) -> Mapping[str, float]:
        """Return the statistics of the pass, by name."""

    def state(self) -> Any:
        """Return what this process has found in its part of the data, for `ProcessGroup.gather_object`."""
        raise NotImplementedError

    def merge(self, states: Sequence[Any]) -> None:
        """Take the states of all processes, by rank, this one's included, in place of the own.

        Args:
            states: what `state` has returned in each process; one that had no batch is among them.
        """
        raise NotImplementedError

    @classmethod
    def can_merge(cls) -> bool:
        """Whether this class defines both `state` and `merge`."""
        return cls.state is not Inferencer.state and cls.merge is not Inferencer.merge


class ScalarStats(Inferencer):
    """The mean of scalars over all examples: each batch is weighted by its size.

    The size of a batch is the first dimension of the tower's first input that is not a scalar. So the mean of a scalar
    that is itself a mean over the batch is exact, also when the last batch is smaller.

    Args:
        names: names of scalar tensors in the tower.
        prefix: the statistics are called ``<prefix>_<name>``; empty for just the name.
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
        """Return the scalars, then the size of the batch.

        Raises:
            ConfigError: if one of them is not known to be a scalar.
        """
        tensors = tower.get_tensors(self.names)
        for tensor in tensors:
            if tensor.shape.rank != 0:
                raise ConfigError(
                    f"ScalarStats takes scalars, but {tensor.name!r} has shape {tensor.shape}. Reduce it in the model."
                )
        return (*tensors, _batch_size(tower))

    def before_inference(self) -> None:
        """Forget the last pass."""
        self._values = []

    def on_fetches(self, results: Any) -> None:
        """Take the scalars of a batch, and its size."""
        self._values.append(results)

    def after_inference(self) -> Mapping[str, float]:
        """Return the means, NaN if there was no batch."""
        rows = np.asarray(self._values, np.float64).reshape(-1, len(self.names) + 1)
        return {name: _mean(column, rows[:, -1]) for name, column in zip(self.statistics, rows.T[:-1], strict=True)}

    def state(self) -> list[tuple[float, ...]]:
        """Return the scalars and the sizes of all batches."""
        return [tuple(map(float, values)) for values in self._values]

    def merge(self, states: Sequence[list[tuple[float, ...]]]) -> None:
        """Take the batches of all processes."""
        self._values = [values for state in states for values in state]


class ClassificationError(Inferencer):
    """The share of wrong predictions among all examples, exact for batches of different sizes.

    Args:
        wrong_tensor_name: a vector in the tower, with 1 (or true) for each example that was predicted wrongly.
        summary_name: what the statistic is called.
    """

    def __init__(self, wrong_tensor_name: str = "incorrect_vector", summary_name: str = "validation_error") -> None:
        self.wrong_tensor_name = wrong_tensor_name
        self.summary_name = summary_name
        self._wrong = 0.0
        self._total = 0

    @property
    def statistics(self) -> Sequence[str]:
        """The name of the share."""
        return [self.summary_name]

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return the vector.

        Raises:
            ConfigError: if it is not known to be a vector.
        """
        return _vector(tower, self.wrong_tensor_name, "ClassificationError takes")

    def before_inference(self) -> None:
        """Forget the last pass."""
        self._wrong, self._total = 0.0, 0

    def on_fetches(self, results: Any) -> None:
        """Count the wrong ones of a batch."""
        self._wrong += float(np.sum(results, dtype=np.float64))
        self._total += len(results)

    def after_inference(self) -> Mapping[str, float]:
        """Return the share, NaN if there was no example."""
        return {self.summary_name: self._wrong / self._total if self._total else math.nan}

    def state(self) -> tuple[float, int]:
        """Return how many were wrong, and how many there were."""
        return self._wrong, self._total

    def merge(self, states: Sequence[tuple[float, int]]) -> None:
        """Add up what the processes have counted."""
        self._wrong = math.fsum(wrong for wrong, _ in states)
        self._total = sum(total for _, total in states)


class BinaryClassificationStats(Inferencer):
    """Precision, recall and F1 of yes-or-no predictions, over all examples.

    They are called ``<prefix>_precision``, ``<prefix>_recall`` and ``<prefix>_f1``; with several thresholds, each is
    followed by ``@`` and the threshold. A statistic of which the denominator is zero is 0, as in TensorFlow's metrics.

    Args:
        pred_tensor_name: a vector in the tower: for each example 1 or 0, true or false, or a score.
        label_tensor_name: a vector in the tower with 1 (or true) for each example that is positive, else 0.
        prefix: what the names begin with.
        thresholds: a prediction greater than that is positive; one number, or several.

    Raises:
        ConfigError: if there is no threshold, or one is there twice.

    Example:
        ```python
        tpk.InferenceRunner(batches, BinaryClassificationStats("probability", "label", thresholds=[0.3, 0.5, 0.7]))
        ```
    """

    def __init__(
        self,
        pred_tensor_name: str,
        label_tensor_name: str,
        prefix: str = "val",
        thresholds: float | Sequence[float] = 0.5,
    ) -> None:
        self.pred_tensor_name = pred_tensor_name
        self.label_tensor_name = label_tensor_name
        self.prefix = prefix
        several = [thresholds] if isinstance(thresholds, int | float) else list(thresholds)
        if not several or len(set(several)) != len(several):
            raise ConfigError(
                f"BinaryClassificationStats(thresholds={thresholds!r}): expected a number, or several different ones."
            )
        self._suffixes = ["" if len(several) == 1 else f"@{threshold}" for threshold in several]
        self._thresholds = np.asarray(several, np.float64)
        # A row each: true positives, predicted positives, labelled positives.
        self._counts = np.zeros([3, len(several)], np.int64)

    @property
    def statistics(self) -> Sequence[str]:
        """The names of precision, recall and F1 for each threshold."""
        return [f"{self.prefix}_{name}{suffix}" for suffix in self._suffixes for name in ("precision", "recall", "f1")]

    def get_fetches(self, tower: TowerHandle) -> Any:
        """Return predictions and labels.

        Raises:
            ConfigError: if they are not known to be vectors.
        """
        names = (self.pred_tensor_name, self.label_tensor_name)
        return tuple(_vector(tower, name, "BinaryClassificationStats takes") for name in names)

    def before_inference(self) -> None:
        """Forget the last pass."""
        self._counts[:] = 0

    def on_fetches(self, results: Any) -> None:
        """Count those of a batch.

        Raises:
            InputError: if there are more predictions than labels, or fewer, or a label is neither 0 nor 1.
        """
        predictions, labels = np.asarray(results[0]), np.asarray(results[1])
        positive = labels.astype(bool)
        if len(predictions) != len(labels) or not np.array_equal(positive, labels):
            raise InputError(
                f"BinaryClassificationStats: {self.label_tensor_name!r} must have a 0 or 1 for each of the "
                f"{len(predictions)} values of {self.pred_tensor_name!r}, but it has {len(labels)}: {labels}"
            )
        predicted = predictions.astype(np.float64)[None] > self._thresholds[:, None]
        self._counts += [(predicted & positive).sum(1), predicted.sum(1), np.full(len(predicted), positive.sum())]

    def after_inference(self) -> Mapping[str, float]:
        """Return precision, recall and F1 for each threshold."""
        hits, predicted, labelled = self._counts
        precision, recall, f1 = (
            hits / np.maximum(predicted, 1),
            hits / np.maximum(labelled, 1),
            2 * hits / np.maximum(predicted + labelled, 1),
        )
        return dict(zip(self.statistics, np.stack([precision, recall, f1], 1).ravel().tolist(), strict=True))

    def state(self) -> Any:
        """Return the counts."""
        return self._counts.copy()

    def merge(self, states: Sequence[Any]) -> None:
        """Add up the counts of all processes."""
        self._counts[:] = sum(states)


def _vector(tower: TowerHandle, name: str, who: str) -> Any:
    tensor = tower.get_tensor(name)
    if tensor.shape.rank != 1:
        raise ConfigError(
            f"{who} a vector with one element for each example, but {tensor.name!r} has shape {tensor.shape}."
        )
    return tensor


def _batch_size(tower: TowerHandle) -> Any:
    batched = [tensor for tensor in tower.inputs if tensor.shape.rank != 0]
    # The product is 1 for a scalar whose rank is not known when the graph is built.
    return tf.reduce_prod(tf.shape(batched[0])[:1]) if batched else tf.constant(1)


def _mean(values: Any, weights: Any) -> float:
    """Return the weighted mean: the same bits in whatever order the values come, and from however many processes."""
    if not np.any(weights):
        return math.nan
    with np.errstate(all="ignore"):
        try:
            return math.fsum(values * weights) / math.fsum(weights)
        except (OverflowError, ValueError):  # infinities of both signs, or a sum beyond the largest number
            return float(np.average(values, weights=weights))


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
