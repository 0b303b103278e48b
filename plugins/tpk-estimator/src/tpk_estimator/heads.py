"""Heads: the loss, predictions, metrics and export outputs that belong to the logits of a model."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import tensorflow as tf
from attrs.validators import ge, gt

from tpk_estimator.export import ClassificationOutput, PredictOutput, RegressionOutput
from tpk_estimator.spec import EstimatorSpec, ModeKeys

v1 = tf.compat.v1

# tf.keras.losses.Reduction and tf.compat.v1.losses.Reduction call the same reductions by different names.
_REDUCTIONS = {
    "sum": v1.losses.Reduction.SUM,
    "sum_over_batch_size": v1.losses.Reduction.SUM_OVER_BATCH_SIZE,
    **{name: name for name in v1.losses.Reduction.all() if name != v1.losses.Reduction.NONE},
}


def _check_reduction(head: Any, attribute: Any, reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"loss_reduction must be one of {', '.join(_REDUCTIONS)}, but is {reduction!r}.")


def _check_loss_fn(head: Any, attribute: Any, loss_fn: Callable[..., Any] | None) -> None:
    if loss_fn is not None:
        missing = {"labels", "logits"} - inspect.signature(loss_fn).parameters.keys()
        if missing:
            raise ValueError(f"loss_fn must have the arguments labels and logits, but {min(missing)} is missing.")


def _check_vocabulary(head: Any, attribute: Any, vocabulary: Any) -> None:
    if vocabulary is None:
        return
    if not isinstance(vocabulary, list | tuple):
        raise ValueError(f"label_vocabulary must be a list of strings, but got {vocabulary!r}.")
    if len(vocabulary) != head.n_classes:
        raise ValueError(
            f"label_vocabulary must have a string for each of the {head.n_classes} classes, but has "
            f"{len(vocabulary)}: {vocabulary!r}."
        )


def _check_thresholds(head: Any, attribute: Any, thresholds: tuple[float, ...]) -> None:
    for threshold in thresholds:
        if not 0 < threshold < 1:
            raise ValueError(f"thresholds must be between 0 and 1, but one is {threshold}.")


def _as_tuple(values: Sequence[Any] | None) -> tuple[Any, ...]:
    return tuple(values or ())


class Head(abc.ABC):
    """The base class of heads.

    A subclass defines `predictions`, and how labels, losses, metrics and export outputs follow from them.

    Attributes:
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one: a name of `tf.compat.v1.losses.Reduction` or
            `tf.keras.losses.Reduction`.
        loss_fn: a function of `labels`, `logits` and, if it has such arguments, `features` and `loss_reduction`. It
            returns the losses of examples.
        name: the suffix of the names of metrics and summaries, and the name scope of the ops.
    """

    weight_column: Any
    loss_reduction: str
    loss_fn: Callable[..., Any] | None
    name: str | None

    @property
    @abc.abstractmethod
    def logits_dimension(self) -> int:
        """The size of the last dimension of the logits."""

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        trainable_variables: Any = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        update_ops: Any = None,
        regularization_losses: Any = None,
    ) -> EstimatorSpec:
        """Return the `EstimatorSpec` of a model.

        Args:
            features: the features of the examples; only those with weights are read.
            mode: one of `ModeKeys`.
            logits: the output of the model; its last dimension is `logits_dimension`.
            labels: the labels. Not needed to predict.
            optimizer: a `tf.compat.v1.train.Optimizer`, for training.
            trainable_variables: the variables to train; by default all trainable variables.
            train_op_fn: a function that makes the op of a step from the loss, instead of `optimizer`.
            update_ops: ops to run with each step; by default those in the collection ``UPDATE_OPS``.
            regularization_losses: scalars to add to the loss.

        Raises:
            ValueError: if a shape is wrong, or training has neither or both of `optimizer` and `train_op_fn`.
        """
        with v1.name_scope(self.name or "head"):
            predictions = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                outputs = {**self._export_outputs(predictions), "predict": PredictOutput(predictions)}
                return EstimatorSpec(mode, predictions, export_outputs=outputs)
            logits = self._checked_logits(logits)
            labels, weights = self._checked_labels(labels, logits), self._weights(features, logits)
            losses = self._losses(labels, logits, features)
            loss = self._reduced(losses, weights, regularization_losses)
            if mode == ModeKeys.EVAL:
                metrics = {
                    "average_loss": v1.metrics.mean(losses, weights),
                    **self._metrics(predictions, labels, weights),
                }
                if regularization_losses:
                    metrics["regularization_loss"] = v1.metrics.mean(tf.add_n(regularization_losses))
                named = {self._key(name): metric for name, metric in metrics.items()}
                return EstimatorSpec(mode, predictions, loss, eval_metric_ops=named)
            with self._train_scope():
                train_op = _train_op(loss, optimizer, train_op_fn, trainable_variables, update_ops)
            is_sum = self.loss_reduction == v1.losses.Reduction.SUM
            average = self._average_loss(losses, weights) if is_sum else None
        with v1.name_scope(""):
            v1.summary.scalar(self._key("loss"), loss)
            if average is not None:
                v1.summary.scalar(self._key("average_loss"), average)
            if regularization_losses:
                v1.summary.scalar(self._key("regularization_loss"), tf.add_n(regularization_losses))
        return EstimatorSpec(mode, predictions, loss, train_op)

    def loss(
        self, labels: Any, logits: Any, features: Any = None, mode: Any = None, regularization_losses: Any = None
    ) -> Any:
        """Return the loss as a scalar: weighted, reduced, and with the regularization losses."""
        logits = self._checked_logits(logits)
        losses = self._losses(self._checked_labels(labels, logits), logits, features)
        weights = self._weights(features, logits)
        return self._reduced(losses, weights, regularization_losses)

    @abc.abstractmethod
    def predictions(self, logits: Any) -> dict[str, Any]:
        """Return the predictions by name."""

    @contextmanager
    def _train_scope(self) -> Iterator[None]:
        """Enter the name scope for the ops and variables of the optimizer."""
        with v1.name_scope(""), v1.name_scope("training"):
            yield

    def _average_loss(self, losses: Any, weights: Any) -> Any:
        mean = v1.losses.Reduction.MEAN
        return v1.losses.compute_weighted_loss(losses, weights, loss_collection=None, reduction=mean)

    def _reduced(self, losses: Any, weights: Any, regularization_losses: Any) -> Any:
        loss = v1.losses.compute_weighted_loss(losses, weights, reduction=_REDUCTIONS[self.loss_reduction])
        return tf.add_n([loss, *regularization_losses]) if regularization_losses else loss

    def _label_dimension(self) -> int:
        return self.logits_dimension

    @abc.abstractmethod
    def _as_labels(self, labels: Any) -> Any:
        """Return labels of the right shape as the numbers that the loss takes."""

    @abc.abstractmethod
    def _default_losses(self, labels: Any, logits: Any) -> Any:
        """Return the losses of the examples, with the rank of the logits."""

    @abc.abstractmethod
    def _metrics(self, predictions: Mapping[str, Any], labels: Any, weights: Any) -> dict[str, Any]:
        """Return the metrics of an evaluation by name, besides the average loss."""

    @abc.abstractmethod
    def _export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the signatures of an export by name, besides ``"predict"``."""

    def _key(self, name: str) -> str:
        return f"{name}/{self.name}" if self.name else name

    def _checked_logits(self, logits: Any) -> Any:
        logits = tf.convert_to_tensor(logits)
        if not logits.shape[-1:].is_compatible_with([self.logits_dimension]):
            raise ValueError(
                f"the logits of a {type(self).__name__} must have the last dimension {self.logits_dimension}, "
                f"but {logits.name!r} has the shape {logits.shape}."
            )
        return logits

    def _checked_labels(self, labels: Any, logits: Any) -> Any:
        if labels is None:
            raise ValueError("the labels are None, but training and evaluation need them: return them in the input_fn.")
        if isinstance(labels, Mapping):
            raise ValueError(f"the labels must be one tensor, but they are a dict with the names {sorted(labels)}.")
        labels = tf.convert_to_tensor(labels)
        if labels.shape.rank is not None and labels.shape.rank == logits.shape.rank - 1:
            labels = tf.expand_dims(labels, -1)
        expected = logits.shape[:-1].concatenate(self._label_dimension())
        if not labels.shape.is_compatible_with(expected):
            raise ValueError(
                f"the labels of a {type(self).__name__} must have the shape {expected}, but {labels.name!r} has the "
                f"shape {labels.shape}: check n_classes or label_dimension, and the input_fn."
            )
        return self._as_labels(labels)

    def _weights(self, features: Any, logits: Any) -> Any:
        if self.weight_column is None:
            return 1.0
        key = getattr(self.weight_column, "key", self.weight_column)
        if key not in features:
            raise ValueError(f"the weights {key!r} are not in the features, which have the names {sorted(features)}.")
        weights = tf.cast(features[key], tf.float32)
        if normalizer := getattr(self.weight_column, "normalizer_fn", None):
            weights = normalizer(weights)
        return tf.expand_dims(weights, -1) if weights.shape.rank == logits.shape.rank - 1 else weights

    def _losses(self, labels: Any, logits: Any, features: Any) -> Any:
        if self.loss_fn is None:
            return self._default_losses(labels, logits)
        optional = {"features": features, "loss_reduction": self.loss_reduction}
        known = inspect.signature(self.loss_fn).parameters.keys()
        options = {name: value for name, value in optional.items() if name in known}
        losses = tf.convert_to_tensor(self.loss_fn(labels=labels, logits=logits, **options))
        return tf.expand_dims(losses, -1) if losses.shape.rank == logits.shape.rank - 1 else losses


def _train_op(loss: Any, optimizer: Any, train_op_fn: Any, variables: Any, update_ops: Any) -> Any:
    if (optimizer is None) == (train_op_fn is None):
        raise ValueError("give create_estimator_spec either an optimizer or a train_op_fn, to train.")
    if train_op_fn is not None:
        train_op = train_op_fn(loss)
    elif isinstance(optimizer, v1.train.Optimizer):
        train_op = optimizer.minimize(loss, v1.train.get_or_create_global_step(), variables)
    else:
        raise ValueError(f"optimizer must be a tf.compat.v1.train.Optimizer, but got {optimizer!r}.")
    update_ops = update_ops or v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    return tf.group(train_op, *update_ops) if update_ops else train_op


class _ClassHead(Head):
    """A head whose logits are scores of classes, which may have names."""

    n_classes: int
    label_vocabulary: Sequence[str] | None

    # How the area under the precision-recall curve is computed.
    _summation_method = "careful_interpolation"

    def _areas(self, labels: Any, probabilities: Any, weights: Any) -> dict[str, Any]:
        """Return the areas under the ROC and the precision-recall curve."""
        return {
            "auc": v1.metrics.auc(labels, probabilities, weights),
            "auc_precision_recall": v1.metrics.auc(
                labels, probabilities, weights, curve="PR", summation_method=self._summation_method
            ),
        }

    def _class_names(self) -> Any:
        return tf.constant(self.label_vocabulary or [str(index) for index in range(self.n_classes)])

    def _tiled(self, classes: Any, logits: Any) -> Any:
        return tf.tile(tf.expand_dims(classes, 0), [tf.shape(logits)[0], 1])

    def _class_ids(self, labels: Any) -> Any:
        """Return labels, which are numbers or words of the vocabulary, as class ids, which are checked in each step."""
        vocabulary, given = self.label_vocabulary, labels
        if labels.dtype == tf.bool:
            labels = tf.cast(labels, tf.int64)
        if vocabulary is not None:
            if labels.dtype != tf.string:
                raise ValueError(f"the labels must be strings of label_vocabulary, but they are {labels.dtype.name}.")
            labels = _looked_up(labels, vocabulary)
        elif not (labels.dtype.is_integer or (labels.dtype.is_floating and self.n_classes == 2)):
            raise ValueError(
                f"the labels of a {type(self).__name__} must be integers, but they are {labels.dtype.name}: "
                "cast them, or give a label_vocabulary for strings."
            )
        where = f"in label_vocabulary {list(vocabulary)}" if vocabulary else f"between 0 and {self.n_classes - 1}"
        valid = tf.reduce_all((labels >= 0) & (labels <= self.n_classes - 1))
        with tf.control_dependencies([v1.Assert(valid, [f"labels must be {where}, but are", given])]):
            return tf.identity(labels)

    def _class_predictions(self, logits: Any, probabilities: Any) -> dict[str, Any]:
        class_ids = tf.expand_dims(tf.argmax(probabilities, -1, name="class_ids"), -1)
        names = self._class_names()
        return {
            "probabilities": probabilities,
            "class_ids": class_ids,
            "classes": tf.gather(names, class_ids, name="str_classes"),
            "all_class_ids": self._tiled(tf.range(self.n_classes), logits),
            "all_classes": self._tiled(names, logits),
        }

    def _export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        probabilities = predictions["probabilities"]
        classes = self._tiled(self._class_names(), probabilities)
        classification = ClassificationOutput(probabilities, classes)
        return {"serving_default": classification, "classification": classification}


def _looked_up(labels: Any, vocabulary: Sequence[str]) -> Any:
    ids = tf.range(len(vocabulary), dtype=tf.int64)
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary), ids)
    return tf.lookup.StaticHashTable(initializer, -1, name="class_id_lookup").lookup(labels)


@attrs.frozen(eq=False)
class MultiClassHead(_ClassHead):
    """A head for examples that each have one of more than two classes, with the softmax cross entropy.

    The labels are class ids, or strings of `label_vocabulary`, with the shape ``[batch_size, 1]`` or ``[batch_size]``.

    Args:
        n_classes: the number of classes.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        label_vocabulary: the names of the classes.
        loss_reduction: how the losses of examples become one.
        loss_fn: a function that returns the losses of examples.
        name: the suffix of the names of metrics and summaries.

    Raises:
        ValueError: if an argument is invalid.
    """

    n_classes: int = attrs.field(validator=gt(2))
    weight_column: Any = None
    label_vocabulary: Sequence[str] | None = attrs.field(default=None, validator=_check_vocabulary)
    loss_reduction: str = attrs.field(default="sum_over_batch_size", validator=_check_reduction)
    loss_fn: Any = attrs.field(default=None, validator=_check_loss_fn)
    name: str | None = None

    @property
    def logits_dimension(self) -> int:
        """The number of classes."""
        return self.n_classes

    def predictions(self, logits: Any) -> dict[str, Any]:
        """Return the logits, probabilities, class ids and classes, and all class ids and classes."""
        logits = self._checked_logits(logits)
        with v1.name_scope("predictions"):
            return {"logits": logits, **self._class_predictions(logits, tf.nn.softmax(logits, name="probabilities"))}

    def _label_dimension(self) -> int:
        return 1

    def _as_labels(self, labels: Any) -> Any:
        return self._class_ids(labels)

    def _default_losses(self, labels: Any, logits: Any) -> Any:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.squeeze(labels, -1), logits)
        return tf.expand_dims(losses, -1)

    def _metrics(self, predictions: Mapping[str, Any], labels: Any, weights: Any) -> dict[str, Any]:
        return {"accuracy": v1.metrics.accuracy(labels, predictions["class_ids"], weights)}


@attrs.frozen(eq=False)
class BinaryClassHead(_ClassHead):
    """A head for examples of two classes, with the sigmoid cross entropy.

    The labels are numbers between 0 and 1, or strings of `label_vocabulary`, with the shape ``[batch_size, 1]`` or
    ``[batch_size]``.

    Args:
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        thresholds: thresholds of the probability, for more metrics.
        label_vocabulary: the names of the two classes.
        loss_reduction: how the losses of examples become one.
        loss_fn: a function that returns the losses of examples.
        name: the suffix of the names of metrics and summaries.

    Raises:
        ValueError: if an argument is invalid.
    """

    weight_column: Any = None
    thresholds: Sequence[float] = attrs.field(default=(), converter=_as_tuple, validator=_check_thresholds)
    label_vocabulary: Sequence[str] | None = attrs.field(default=None, validator=_check_vocabulary)
    loss_reduction: str = attrs.field(default="sum_over_batch_size", validator=_check_reduction)
    loss_fn: Any = attrs.field(default=None, validator=_check_loss_fn)
    name: str | None = None

    n_classes = 2
    logits_dimension = 1

    def predictions(self, logits: Any) -> dict[str, Any]:
        """Return the logits, their sigmoid, probabilities, class ids and classes, and all class ids and classes."""
        logits = self._checked_logits(logits)
        with v1.name_scope("predictions"):
            logistic = tf.sigmoid(logits, name="logistic")
            both = tf.concat([tf.zeros_like(logits), logits], -1, name="two_class_logits")
            probabilities = tf.nn.softmax(both, name="probabilities")
            return {"logits": logits, "logistic": logistic, **self._class_predictions(logits, probabilities)}

    def _as_labels(self, labels: Any) -> Any:
        return tf.cast(self._class_ids(labels), tf.float32)

    def _default_losses(self, labels: Any, logits: Any) -> Any:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)

    def _metrics(self, predictions: Mapping[str, Any], labels: Any, weights: Any) -> dict[str, Any]:
        logistic, class_ids = predictions["logistic"], predictions["class_ids"]
        label_mean = v1.metrics.mean(labels, weights)
        return {
            "accuracy": v1.metrics.accuracy(labels, class_ids, weights),
            "precision": v1.metrics.precision(labels, class_ids, weights),
            "recall": v1.metrics.recall(labels, class_ids, weights),
            "prediction/mean": v1.metrics.mean(logistic, weights),
            "label/mean": label_mean,
            "accuracy_baseline": tuple(tf.maximum(mean, 1 - mean) for mean in label_mean),
            **self._areas(labels, logistic, weights),
            **_threshold_metrics(labels, logistic, weights, self.thresholds),
        }

    def _export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._export_outputs(predictions), "regression": RegressionOutput(predictions["logistic"])}


@attrs.frozen(eq=False)
class MultiLabelHead(_ClassHead):
    """A head for examples that each have any number of classes, with the mean of the classes' sigmoid cross entropies.

    The labels are a tensor of zeros and ones with the shape ``[batch_size, n_classes]``, or a `tf.SparseTensor` of
    class ids or of strings of `label_vocabulary`.

    Args:
        n_classes: the number of classes.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        thresholds: thresholds of the probability, for more metrics.
        label_vocabulary: the names of the classes.
        loss_reduction: how the losses of examples become one.
        loss_fn: a function that returns the losses of examples.
        classes_for_class_based_metrics: names or ids of classes that have metrics of their own.
        name: the suffix of the names of metrics and summaries.

    Raises:
        ValueError: if an argument is invalid.
    """

    n_classes: int = attrs.field(validator=ge(2))
    weight_column: Any = None
    thresholds: Sequence[float] = attrs.field(default=(), converter=_as_tuple, validator=_check_thresholds)
    label_vocabulary: Sequence[str] | None = attrs.field(default=None, validator=_check_vocabulary)
    loss_reduction: str = attrs.field(default="sum_over_batch_size", validator=_check_reduction)
    loss_fn: Any = attrs.field(default=None, validator=_check_loss_fn)
    classes_for_class_based_metrics: Sequence[Any] = attrs.field(default=(), converter=_as_tuple)
    name: str | None = None

    @classes_for_class_based_metrics.validator
    def _check_classes(self, attribute: Any, classes: Sequence[Any]) -> None:
        for label in classes:
            known = list(self.label_vocabulary or ()) if isinstance(label, str) else list(range(self.n_classes))
            if label not in known:
                raise ValueError(f"classes_for_class_based_metrics has {label!r}, which is not one of {known}.")

    @property
    def logits_dimension(self) -> int:
        """The number of classes."""
        return self.n_classes

    def predictions(self, logits: Any) -> dict[str, Any]:
        """Return the logits, the probability of each class, and the classes."""
        logits = self._checked_logits(logits)
        with v1.name_scope("predictions"):
            probabilities = tf.sigmoid(logits, name="probabilities")
            return {
                "logits": logits,
                "probabilities": probabilities,
                "classes": self._tiled(self._class_names(), logits),
            }

    def _checked_labels(self, labels: Any, logits: Any) -> Any:
        if not isinstance(labels, tf.SparseTensor):
            return super()._checked_labels(labels, logits)
        ids = labels.with_values(tf.cast(self._class_ids(labels.values), tf.int64))
        return tf.cast(v1.sparse_to_indicator(ids, self.n_classes), tf.float32)

    def _as_labels(self, labels: Any) -> Any:
        if labels.dtype == tf.string:
            raise ValueError("string labels of a MultiLabelHead must be a SparseTensor: use tf.io.VarLenFeature.")
        return tf.cast(labels, tf.float32)

    def _default_losses(self, labels: Any, logits: Any) -> Any:
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        return tf.reduce_mean(losses, -1, keepdims=True)

    def _metrics(self, predictions: Mapping[str, Any], labels: Any, weights: Any) -> dict[str, Any]:
        probabilities = predictions["probabilities"]
        metrics = {
            **self._areas(labels, probabilities, weights),
            **_threshold_metrics(labels, probabilities, weights, self.thresholds),
        }
        for label in self.classes_for_class_based_metrics:
            index = list(self.label_vocabulary or ()).index(label) if isinstance(label, str) else label
            suffix = label if isinstance(label, str) else f"class{label}"
            column = slice(index, index + 1)
            metrics[f"probability_mean/{suffix}"] = v1.metrics.mean(probabilities[..., column], weights)
            areas = self._areas(labels[..., column], probabilities[..., column], weights)
            metrics.update({f"{name}/{suffix}": area for name, area in areas.items()})
        return metrics


@attrs.frozen(eq=False)
class RegressionHead(Head):
    """A head for numbers, with the squared error.

    The labels have the shape ``[batch_size, label_dimension]``, or ``[batch_size]`` for one dimension.

    Args:
        label_dimension: how many numbers each example has.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one.
        loss_fn: a function that returns the losses of examples.
        inverse_link_fn: a function that computes predictions from logits.
        name: the suffix of the names of metrics and summaries.

    Raises:
        ValueError: if an argument is invalid.
    """

    label_dimension: int = attrs.field(default=1, validator=ge(1))
    weight_column: Any = None
    loss_reduction: str = attrs.field(default="sum_over_batch_size", validator=_check_reduction)
    loss_fn: Any = attrs.field(default=None, validator=_check_loss_fn)
    inverse_link_fn: Callable[[Any], Any] | None = None
    name: str | None = None

    @property
    def logits_dimension(self) -> int:
        """The number of predicted numbers."""
        return self.label_dimension

    def predictions(self, logits: Any) -> dict[str, Any]:
        """Return the predictions; also the logits, if there is an `inverse_link_fn`."""
        logits = self._checked_logits(logits)
        if self.inverse_link_fn is None:
            return {"predictions": logits}
        with v1.name_scope("predictions"):
            return {"predictions": self.inverse_link_fn(logits), "logits": logits}

    def _as_labels(self, labels: Any) -> Any:
        return tf.cast(labels, tf.float32)

    def _default_losses(self, labels: Any, logits: Any) -> Any:
        return tf.math.squared_difference(logits, labels)

    def _metrics(self, predictions: Mapping[str, Any], labels: Any, weights: Any) -> dict[str, Any]:
        return {
            "prediction/mean": v1.metrics.mean(predictions["predictions"], weights),
            "label/mean": v1.metrics.mean(labels, weights),
        }

    def _export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        regression = RegressionOutput(predictions["predictions"])
        return {"serving_default": regression, "regression": regression}


class PoissonRegressionHead(RegressionHead):
    """A head for counts, with the Poisson loss of the exponential of the logits.

    Args:
        label_dimension: how many numbers each example has.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one.
        compute_full_loss: whether the loss has its constant part, Stirling's approximation.
        name: the suffix of the names of metrics and summaries.

    Raises:
        ValueError: if an argument is invalid.
    """

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        compute_full_loss: bool = True,
        name: str | None = None,
    ) -> None:
        def loss_fn(labels: Any, logits: Any) -> Any:
            return tf.nn.log_poisson_loss(labels, logits, compute_full_loss)

        super().__init__(label_dimension, weight_column, loss_reduction, loss_fn, tf.exp, name)


class LogisticRegressionHead(RegressionHead):
    """A head for probabilities, with the sigmoid cross entropy.

    Args:
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one.
        name: the suffix of the names of metrics and summaries.

    Raises:
        ValueError: if an argument is invalid.
    """

    def __init__(
        self, weight_column: Any = None, loss_reduction: str = "sum_over_batch_size", name: str | None = None
    ) -> None:
        super().__init__(1, weight_column, loss_reduction, _sigmoid_losses, tf.sigmoid, name)


def _sigmoid_losses(labels: Any, logits: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)


def _threshold_metrics(labels: Any, probabilities: Any, weights: Any, thresholds: Sequence[float]) -> dict[str, Any]:
    metrics = {}
    for threshold in thresholds:
        positive = tf.cast(probabilities > threshold, tf.float32)
        for metric in (v1.metrics.accuracy, v1.metrics.precision, v1.metrics.recall):
            metrics[f"{metric.__name__}/positive_threshold_{threshold:g}"] = metric(labels, positive, weights)
    return metrics
