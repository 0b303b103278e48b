"""Linear estimators: weighted sums of feature columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk_estimator.canned.dnn import partitioner as default_partitioner
from tpk_estimator.canned.optimizers import as_optimizer
from tpk_estimator.canned.with_head import Classifier, Regressor
from tpk_estimator.estimator import Estimator
from tpk_estimator.heads import Head
from tpk_estimator.spec import EstimatorSpec

v1 = tf.compat.v1

_LEARNING_RATE = 0.2


def linear_logit_fn_builder(
    units: int, feature_columns: Sequence[Any], sparse_combiner: str = "sum"
) -> Callable[[Any], Any]:
    """Return a function of ``features`` that adds a linear model to the graph and returns its logits.

    Args:
        units: the last dimension of the logits.
        feature_columns: dense or categorical feature columns.
        sparse_combiner: how the weights of several categories of one example are combined: ``"sum"``, ``"mean"`` or
            ``"sqrtn"``.
    """

    def logit_fn(features: Any) -> Any:
        variables: dict[Any, list[Any]] = {}
        logits = v1.feature_column.linear_model(
            features, feature_columns, units, sparse_combiner, cols_to_vars=variables
        )
        bias = tf.concat(variables.pop("bias"), 0)
        if units > 1:
            v1.summary.histogram("bias", bias)
        else:
            v1.summary.scalar("bias", bias[0])
        v1.summary.scalar("fraction_of_zero_weights", _zero_fraction(variables))
        return logits

    return logit_fn


def _zero_fraction(variables: dict[Any, list[Any]]) -> Any:
    """Return how many of the weights of all columns are zero."""
    parts = [part for weights in variables.values() for part in weights]
    zeros = tf.add_n([tf.size(part, tf.int64) - tf.math.count_nonzero(part) for part in parts])
    return tf.cast(zeros, tf.float32) / tf.cast(tf.add_n([tf.size(part, tf.int64) for part in parts]), tf.float32)


class LinearEstimator(Estimator):
    """A linear estimator with a head of your choice.

    Args:
        head: a `Head`.
        feature_columns: dense or categorical feature columns.
        model_dir: the directory of checkpoints and event files.
        optimizer: a `tf.compat.v1.train.Optimizer`, a function that returns one, or a name. By default Ftrl with the
            learning rate 0.2.
        config: the settings.
        partitioner: the partitioner of the variables.
        sparse_combiner: how the weights of several categories of one example are combined.
        warm_start_from: as for `Estimator`.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Sequence[Any],
        model_dir: Any = None,
        *,
        optimizer: Any = "Ftrl",
        config: Any = None,
        partitioner: Any = None,
        sparse_combiner: str = "sum",
        warm_start_from: Any = None,
    ) -> None:
        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
            logit_fn = linear_logit_fn_builder(head.logits_dimension, feature_columns, sparse_combiner)
            with v1.variable_scope("linear", partitioner=partitioner or default_partitioner(config, 64 << 20)):
                logits = logit_fn(features)
                chosen = as_optimizer(optimizer, _LEARNING_RATE)
                return head.create_estimator_spec(features, mode, logits, labels, chosen)

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearClassifier(Classifier, LinearEstimator):
    """A linear classifier.

    Args:
        arguments: `feature_columns` and `model_dir` of `LinearEstimator`, which can also be given by name.
        n_classes: the number of classes.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        label_vocabulary: the names of the classes, if the labels are strings.
        loss_reduction: how the losses of examples become one.
        options: further arguments of `LinearEstimator`.
    """


class LinearRegressor(Regressor, LinearEstimator):
    """A linear regressor.

    Args:
        arguments: `feature_columns` and `model_dir` of `LinearEstimator`, which can also be given by name.
        label_dimension: how many numbers each example has.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one.
        options: further arguments of `LinearEstimator`.
    """
