"""Wide and deep estimators: the logits of a linear and of a deep model, added."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk_estimator.canned.dnn import dnn_logit_fn_builder, partitioner, summarize
from tpk_estimator.canned.linear import linear_logit_fn_builder
from tpk_estimator.canned.optimizers import as_optimizer
from tpk_estimator.canned.with_head import Classifier, Regressor
from tpk_estimator.estimator import Estimator
from tpk_estimator.heads import Head
from tpk_estimator.spec import EstimatorSpec

v1 = tf.compat.v1

_DNN_LEARNING_RATE = 0.001
_LARGEST_LINEAR_LEARNING_RATE = 0.005


class DNNLinearCombinedEstimator(Estimator):
    """A wide and deep estimator with a head of your choice. Each part has its own columns and its own optimizer.

    Args:
        head: a `Head`.
        model_dir: the directory of checkpoints and event files.
        linear_feature_columns: the feature columns of the linear part, which may be missing.
        linear_optimizer: an optimizer, a function that returns one, or a name. By default Ftrl with the learning rate
            0.005, or one divided by the square root of the number of columns if that is smaller.
        dnn_feature_columns: the feature columns of the deep part, which may be missing.
        dnn_optimizer: an optimizer, a function that returns one, or a name. By default Adagrad with the learning rate
            0.001.
        dnn_hidden_units: the number of units of each hidden layer.
        dnn_activation_fn: the activation function of the hidden layers.
        dnn_dropout: the probability to drop a hidden unit in training; None for no dropout.
        input_layer_partitioner: the partitioner of the variables of the columns.
        config: the settings.
        warm_start_from: as for `Estimator`.
        batch_norm: whether to normalize the outputs of hidden layers over the batch.
        linear_sparse_combiner: how the weights of several categories of one example are combined.

    Raises:
        ValueError: if there are no columns, or only one of `dnn_feature_columns` and `dnn_hidden_units`.
    """

    def __init__(
        self,
        head: Head,
        model_dir: Any = None,
        *,
        linear_feature_columns: Sequence[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Sequence[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Callable[[Any], Any] | None = tf.nn.relu,
        dnn_dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        linear_columns, dnn_columns = list(linear_feature_columns or ()), list(dnn_feature_columns or ())
        if not linear_columns and not dnn_columns:
            raise ValueError("there are no columns: give linear_feature_columns, dnn_feature_columns, or both.")
        if bool(dnn_columns) != bool(dnn_hidden_units):
            raise ValueError("dnn_feature_columns and dnn_hidden_units belong together, but one of them is missing.")

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
            columns_partitioner = input_layer_partitioner or partitioner(config, 64 << 20)
            parts, optimizers = [], {}
            if dnn_columns:
                logit_fn = dnn_logit_fn_builder(
                    head.logits_dimension,
                    dnn_hidden_units or (),
                    dnn_columns,
                    dnn_activation_fn,
                    dnn_dropout,
                    columns_partitioner,
                    batch_norm,
                )
                with v1.variable_scope("dnn", partitioner=partitioner(config), use_resource=True):
                    parts.append(logit_fn(features, mode))
                optimizers["dnn"] = as_optimizer(dnn_optimizer, _DNN_LEARNING_RATE)
            if linear_columns:
                linear_fn = linear_logit_fn_builder(head.logits_dimension, linear_columns, linear_sparse_combiner)
                with v1.variable_scope("linear", partitioner=columns_partitioner) as scope:
                    parts.append(linear_fn(features))
                    summarize(parts[-1], scope.name)
                rate = min(_LARGEST_LINEAR_LEARNING_RATE, 1 / math.sqrt(len(linear_columns)))
                optimizers["linear"] = as_optimizer(linear_optimizer, rate)

            def train_op_fn(loss: Any) -> Any:
                return _step(loss, optimizers)

            logits = parts[0] if len(parts) == 1 else parts[0] + parts[1]
            return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train_op_fn)

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def _step(loss: Any, optimizers: dict[str, Any]) -> Any:
    """Train the variables of each scope with its optimizer, then count one step."""
    updates = [
        optimizer.minimize(loss, var_list=v1.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES, scope=f"{scope}/"))
        for scope, optimizer in optimizers.items()
    ]
    with tf.control_dependencies([tf.group(*updates)]):
        return v1.assign_add(v1.train.get_or_create_global_step(), 1).op


class DNNLinearCombinedClassifier(Classifier, DNNLinearCombinedEstimator):
    """A wide and deep classifier.

    Args:
        arguments: `model_dir` of `DNNLinearCombinedEstimator`, which can also be given by name.
        n_classes: the number of classes.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        label_vocabulary: the names of the classes, if the labels are strings.
        loss_reduction: how the losses of examples become one.
        options: further arguments of `DNNLinearCombinedEstimator`.
    """


class DNNLinearCombinedRegressor(Regressor, DNNLinearCombinedEstimator):
    """A wide and deep regressor.

    Args:
        arguments: `model_dir` of `DNNLinearCombinedEstimator`, which can also be given by name.
        label_dimension: how many numbers each example has.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one.
        options: further arguments of `DNNLinearCombinedEstimator`.
    """
