"""Baseline estimators, which ignore the features: they learn the distribution or the mean of the labels."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_estimator.canned.optimizers import as_optimizer
from tpk_estimator.canned.with_head import Classifier, Regressor
from tpk_estimator.estimator import Estimator
from tpk_estimator.heads import Head
from tpk_estimator.spec import EstimatorSpec

v1 = tf.compat.v1

_LEARNING_RATE = 0.3


class BaselineEstimator(Estimator):
    """A baseline with a head of your choice.

    Args:
        head: a `Head`.
        model_dir: the directory of checkpoints and event files.
        optimizer: a `tf.compat.v1.train.Optimizer`, a function that returns one, or a name. By default Ftrl with the
            learning rate 0.3.
        config: the settings.
    """

    def __init__(self, head: Head, model_dir: Any = None, *, optimizer: Any = "Ftrl", config: Any = None) -> None:
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


class BaselineClassifier(Classifier, BaselineEstimator):
    """A classifier that learns the distribution of the classes.

    Args:
        arguments: `model_dir` of `BaselineEstimator`, which can also be given by name.
        n_classes: the number of classes.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        label_vocabulary: the names of the classes, if the labels are strings.
        loss_reduction: how the losses of examples become one.
        options: further arguments of `BaselineEstimator`.
    """


class BaselineRegressor(Regressor, BaselineEstimator):
    """A regressor that learns the mean of the labels.

    Args:
        arguments: `model_dir` of `BaselineEstimator`, which can also be given by name.
        label_dimension: how many numbers each example has.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one.
        options: further arguments of `BaselineEstimator`.
    """
