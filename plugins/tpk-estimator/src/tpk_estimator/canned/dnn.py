"""Deep estimators: fully connected layers on feature columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk_estimator.canned.dense_features import dense_features
from tpk_estimator.canned.optimizers import as_optimizer
from tpk_estimator.canned.with_head import Classifier, Regressor
from tpk_estimator.estimator import Estimator
from tpk_estimator.heads import Head
from tpk_estimator.spec import EstimatorSpec, ModeKeys

v1 = tf.compat.v1

_LEARNING_RATE = 0.05
_BATCH_NORM_MOMENTUM = 0.999


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Sequence[int],
    feature_columns: Sequence[Any],
    activation_fn: Callable[[Any], Any] | None = tf.nn.relu,
    dropout: float | None = None,
    input_layer_partitioner: Any = None,
    batch_norm: bool = False,
) -> Callable[..., Any]:
    """Return a function of ``features`` and ``mode`` that adds a deep model to the graph and returns its logits.

    Args:
        units: the last dimension of the logits.
        hidden_units: the number of units of each hidden layer.
        feature_columns: dense feature columns.
        activation_fn: the activation function of the hidden layers.
        dropout: the probability to drop a hidden unit in training; None for no dropout.
        input_layer_partitioner: the partitioner of the variables of the columns.
        batch_norm: whether to normalize the outputs of hidden layers over the batch.
    """

    def logit_fn(features: Any, mode: str) -> Any:
        training = mode == ModeKeys.TRAIN
        with v1.variable_scope("input_from_feature_columns", partitioner=input_layer_partitioner):
            net = dense_features(features, feature_columns)
        for index, size in enumerate(hidden_units):
            with v1.variable_scope(f"hiddenlayer_{index}") as scope:
                net = _dense(net, size, activation_fn, scope)
                if dropout and training:
                    net = tf.nn.dropout(net, dropout)
                if batch_norm:
                    net = tpk.layers.batch_normalization(
                        net, momentum=_BATCH_NORM_MOMENTUM, training=training, name=f"batchnorm_{index}"
                    )
            summarize(net, scope.name)
        with v1.variable_scope("logits") as scope:
            logits = _dense(net, units, None, scope)
        summarize(logits, scope.name)
        return logits

    return logit_fn


def _dense(net: Any, units: int, activation: Any, scope: Any) -> Any:
    initializer = v1.glorot_uniform_initializer()
    return tpk.layers.dense(net, units, activation, kernel_initializer=initializer, name=scope)


def summarize(values: Any, name: str) -> None:
    """Add summaries of the output of a layer."""
    v1.summary.scalar(f"{name}/fraction_of_zero_values", tf.math.zero_fraction(values))
    v1.summary.histogram(f"{name}/activation", values)


def partitioner(config: Any, min_slice_size: int = 256 << 10) -> Any:
    """Return a partitioner of variables over the parameter servers."""
    return v1.min_max_variable_partitioner(config.num_ps_replicas, min_slice_size=min_slice_size)


class DNNEstimator(Estimator):
    """A deep estimator with a head of your choice.

    Args:
        head: a `Head`.
        hidden_units: the number of units of each hidden layer.
        feature_columns: dense feature columns.
        model_dir: the directory of checkpoints and event files.
        optimizer: a `tf.compat.v1.train.Optimizer`, a function that returns one, or a name. By default Adagrad with
            the learning rate 0.05.
        activation_fn: the activation function of the hidden layers.
        dropout: the probability to drop a hidden unit in training; None for no dropout.
        input_layer_partitioner: the partitioner of the variables of the columns.
        config: the settings.
        warm_start_from: as for `Estimator`.
        batch_norm: whether to normalize the outputs of hidden layers over the batch.
    """

    def __init__(
        self,
        head: Head,
        hidden_units: Sequence[int],
        feature_columns: Sequence[Any],
        model_dir: Any = None,
        *,
        optimizer: Any = "Adagrad",
        activation_fn: Callable[[Any], Any] | None = tf.nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
    ) -> None:
        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
            logit_fn = dnn_logit_fn_builder(
                head.logits_dimension,
                hidden_units,
                feature_columns,
                activation_fn,
                dropout,
                input_layer_partitioner or partitioner(config, 64 << 20),
                batch_norm,
            )
            with v1.variable_scope("dnn", partitioner=partitioner(config), use_resource=True):
                logits = logit_fn(features, mode)
                chosen = as_optimizer(optimizer, _LEARNING_RATE)
                return head.create_estimator_spec(features, mode, logits, labels, chosen)

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNClassifier(Classifier, DNNEstimator):
    """A deep classifier.

    Args:
        arguments: `hidden_units`, `feature_columns` and `model_dir` of `DNNEstimator`, which can also be given by name.
        n_classes: the number of classes.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        label_vocabulary: the names of the classes, if the labels are strings.
        loss_reduction: how the losses of examples become one.
        options: further arguments of `DNNEstimator`.
    """


class DNNRegressor(Regressor, DNNEstimator):
    """A deep regressor.

    Args:
        arguments: `hidden_units`, `feature_columns` and `model_dir` of `DNNEstimator`, which can also be given by name.
        label_dimension: how many numbers each example has.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one.
        options: further arguments of `DNNEstimator`.
    """
