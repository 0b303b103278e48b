"""Baseline estimators, which ignore the features: they learn the distribution or the mean of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk_estimator.canned.class_heads import class_head
from tpk_estimator.canned.optimizers import as_optimizer
from tpk_estimator.estimator import Estimator
from tpk_estimator.heads import Head, RegressionHead
from tpk_estimator.spec import EstimatorSpec

v1 = tf.compat.v1

_LEARNING_RATE = 0.3
_SUM = v1.losses.Reduction.SUM


class BaselineEstimator(Estimator):
    """A baseline with a head of your choice.

    Args:
        head: a `Head`.
        model_dir: the directory of checkpoints and event files.
        optimizer: a `tf.compat.v1.train.Optimizer`, a function that returns one, or a name. By default Ftrl with the
            learning rate 0.3.
        config: the settings.
    """

    def __init__(self, head: Head, model_dir: Any = None, optimizer: Any = "Ftrl", config: Any = None) -> None:
        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            batch_size = _batch_size(features)
            with v1.variable_scope("baseline"):
                bias = v1.get_variable("bias", [head.logits_dimension], initializer=v1.zeros_initializer())
                logits = tf.ones([batch_size, head.logits_dimension]) * bias
            chosen = as_optimizer(optimizer, _LEARNING_RATE)
            return head.create_estimator_spec(features, mode, logits, labels, chosen)

        super().__init__(model_fn, model_dir, config)


def _batch_size(features: Any) -> Any:
    tensor = tf.nest.flatten(features)[0]
    return tensor.dense_shape[0] if isinstance(tensor, tf.SparseTensor) else tf.shape(tensor)[0]


class BaselineClassifier(BaselineEstimator):
    """A classifier that learns the distribution of the classes.

    Args:
        model_dir: the directory of checkpoints and event files.
        n_classes: the number of classes.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        label_vocabulary: the names of the classes, if the labels are strings.
        optimizer: as for `BaselineEstimator`.
        config: the settings.
        loss_reduction: how the losses of examples become one.
    """

    def __init__(
        self,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        loss_reduction: str = _SUM,
    ) -> None:
        head = class_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, model_dir, optimizer, config)


class BaselineRegressor(BaselineEstimator):
    """A regressor that learns the mean of the labels.

    Args:
        model_dir: the directory of checkpoints and event files.
        label_dimension: how many numbers each example has.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        optimizer: as for `BaselineEstimator`.
        config: the settings.
        loss_reduction: how the losses of examples become one.
    """

    def __init__(
        self,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        loss_reduction: str = _SUM,
    ) -> None:
        super().__init__(RegressionHead(label_dimension, weight_column, loss_reduction), model_dir, optimizer, config)
